//! Packages that do what packages do.

use super::{Deb, Repository};
use crate::fixture::cached;
use crate::run::or_panic;

/// Returns a repository, shared by all tests, of [`hello`] 1.0 and 2.0, [`hello_dep`], [`conf`] 1.0 and 2.0,
/// [`service`], [`curious`] and [`failing`](super::failing).
#[track_caller]
pub fn standard() -> Repository {
    let recipe =
        [include_str!("tame.rs"), include_str!("hostile.rs"), include_str!("deb.rs"), include_str!("repository.rs")];
    let folder = cached("repository", &recipe, |folder| {
        let packages =
            [hello("1.0"), hello("2.0"), hello_dep(), conf("1.0"), conf("2.0"), service(), curious(), super::failing()];
        Repository::try_create(folder, &packages).map(drop)
    });
    Repository::open(&or_panic(folder))
}

/// Describes `hello-bake`: the smallest useful package, with a file whose name is not ASCII.
pub fn hello(version: &str) -> Deb {
    Deb::new("hello-bake", version)
        .file("/usr/bin/hello-bake", format!("#!/bin/sh\necho hello from {version}\n"), 0o755)
        .file("/usr/share/hello-bake/grüße ☃", "hallo\n", 0o644)
        .postinst("mkdir -p /var/lib/hello-bake; echo \"$@\" >> /var/lib/hello-bake/postinst")
}

/// Describes `hello-dep`, which needs `hello-bake`.
pub fn hello_dep() -> Deb {
    Deb::new("hello-dep", "1.0").depends("hello-bake (>= 1.0)").file(
        "/usr/share/hello-dep/text",
        "needs hello\n",
        0o644,
    )
}

/// Describes `conf-bake`: its conffile `/etc/conf-bake.conf` differs from version to version.
pub fn conf(version: &str) -> Deb {
    Deb::new("conf-bake", version).conffile("/etc/conf-bake.conf", format!("version = {version}\n"))
}

/// Describes `service-bake`, which starts its service in the ways that packages do.
///
/// The ways that were tried are in `/var/lib/service-bake/tried`. If the service was really started, there is
/// `/var/lib/service-bake/started`, and a process whose command line has `service-bake-runs`.
pub fn service() -> Deb {
    let init = "\
#!/bin/sh
### BEGIN INIT INFO
# Provides:          service-bake
# Required-Start:
# Required-Stop:
# Default-Start:     2 3 4 5
# Default-Stop:
# Short-Description: a service of the tests of bake
### END INIT INFO
[ \"$1\" = start ] || exit 0
echo \"$0 $*\" >> /var/lib/service-bake/started
setsid sh -c 'while :; do sleep 1; done' service-bake-runs </dev/null >/dev/null 2>&1 &
";
    let unit = "\
[Unit]
Description=a service of the tests of bake
[Service]
ExecStart=/etc/init.d/service-bake start
Type=forking
[Install]
WantedBy=multi-user.target
";
    let postinst = "\
mkdir -p /var/lib/service-bake
if command -v systemctl >/dev/null; then
    systemctl enable service-bake.service
    systemctl restart service-bake.service
    echo systemctl >> /var/lib/service-bake/tried
fi
if command -v deb-systemd-invoke >/dev/null; then
    deb-systemd-invoke start service-bake.service
    echo deb-systemd-invoke >> /var/lib/service-bake/tried
fi
if command -v invoke-rc.d >/dev/null; then
    if command -v update-rc.d >/dev/null; then
        update-rc.d service-bake defaults
    else
        mkdir -p /etc/rc2.d
        ln -sf ../init.d/service-bake /etc/rc2.d/S01service-bake
    fi
    invoke-rc.d --skip-systemd-native service-bake start
    echo invoke-rc.d >> /var/lib/service-bake/tried
fi";
    Deb::new("service-bake", "1.0")
        .file("/etc/init.d/service-bake", init, 0o755)
        .file("/lib/systemd/system/service-bake.service", unit, 0o644)
        .postinst(postinst)
}

/// Describes `curious-bake`: it writes what it sees while it is installed into `/var/lib/curious`, a file for each
/// sight: `hostname`, `resolv.conf`, `mounts`, `env`, `ps`, `dev`, `cmdlines`, `namespaces`, `network`, `stdin`,
/// `umask`, `limits`, `capabilities`.
pub fn curious() -> Deb {
    // What fails is a sight, too: each command's error is in its file.
    let postinst = "\
mkdir -p /var/lib/curious
cd /var/lib/curious
see() { sight=$1; shift; \"$@\" > \"$sight\" 2>&1 || echo \"failed: $*\" >> \"$sight\"; }
see hostname hostname
see resolv.conf cat /etc/resolv.conf
see mounts cat /proc/self/mountinfo
see env env
see ps ps
see dev ls -lR /dev
see cmdlines sh -c 'for one in /proc/[0-9]*/cmdline; do tr \"\\0\" \" \" < $one; echo; done'
see namespaces ls -l /proc/self/ns
see network cat /proc/net/dev
see stdin ls -l /proc/self/fd/0
see umask sh -c umask
see limits cat /proc/self/limits
see capabilities grep ^Cap /proc/self/status";
    Deb::new("curious-bake", "1.0").postinst(postinst)
}
