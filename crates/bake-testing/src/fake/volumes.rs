use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bake_core::{Disk, OpenVolume, Root, Volumes};
use bake_engine::{Classify, StepContext, StepError, StepResult};

use super::provisioner;
use super::root::{FakeRoot, Files, Program, Reply};

/// Volumes whose root is a [`FakeRoot`]: read from the disk when it is opened, written to it when it is sealed.
///
/// A disk of zeros has an empty root; one that holds anything else has none.
#[derive(Clone)]
pub struct FakeVolumes {
    programs: BTreeMap<String, Program>,
    open: Arc<AtomicUsize>,
}

impl Default for FakeVolumes {
    fn default() -> Self {
        let volumes = Self { programs: BTreeMap::new(), open: Arc::default() };
        volumes.with_program(provisioner::INSTALL, provisioner::run_install)
    }
}

impl FakeVolumes {
    /// Puts a program into every root. It gets its words, its own name first, and the files.
    #[must_use]
    pub fn with_program(
        mut self,
        name: &str,
        program: impl Fn(&[&str], &mut Files) -> Reply + Send + Sync + 'static,
    ) -> Self {
        self.programs.insert(name.into(), Arc::new(program));
        self
    }

    /// Returns how many volumes are open.
    pub fn open_now(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Volumes for FakeVolumes {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn open(&self, cx: StepContext, disk: Disk) -> StepResult<Box<dyn OpenVolume>> {
        cx.stop_if_cancelled()?;
        let (files, size) = read_tree(&disk)?;
        let root = FakeRoot::new(files, size, self.programs.clone());
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeOpenVolume { root, disk, _counted: Counted(self.open.clone()) }))
    }
}

fn read_tree(disk: &Disk) -> StepResult<(Files, u64)> {
    let size = disk.file.metadata().permanent()?.len();
    let length = usize::try_from(size).permanent()?;
    let mut bytes = vec![0; length];
    disk.file.read_exact_at(&mut bytes, 0).permanent()?;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let files = match &bytes[..end] {
        [] => Files::new(),
        tree => serde_json::from_slice(tree)
            .map_err(|_| StepError::permanent(format!("there is no root on `{}`", disk.path.display())))?,
    };
    Ok((files, size))
}

struct FakeOpenVolume {
    root: FakeRoot,
    /// Held while it is open, and with it the lock that says so.
    disk: Disk,
    _counted: Counted,
}

/// One of the volumes that are open.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl OpenVolume for FakeOpenVolume {
    fn root(&mut self) -> &mut dyn Root {
        &mut self.root
    }

    async fn seal(self: Box<Self>, _: StepContext) -> StepResult<Vec<String>> {
        let tree = serde_json::to_vec(&self.root.files).permanent()?;
        let size = self.disk.file.metadata().permanent()?.len();
        if tree.len() as u64 > size {
            return Err(StepError::permanent("the root is full"));
        }
        let file = &self.disk.file;
        file.set_len(0).and_then(|()| file.set_len(size)).and_then(|()| file.write_all_at(&tree, 0)).permanent()?;
        Ok(Vec::new())
    }

    async fn discard(self: Box<Self>) -> StepResult<()> {
        Ok(())
    }
}
