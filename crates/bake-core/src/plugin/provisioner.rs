use async_trait::async_trait;
use bake_engine::{StepContext, StepResult};

use crate::{Architecture, Installed, PackageRequest, PackageSpec, Root};

/// Installs packages into a root.
///
/// It sees only a [`Root`]: the host's files reach it by [`Root::bind`], and nothing of the host can be changed from
/// there. What it returns is what the root's own package database says, never what a package manager printed or what
/// its exit code was. A requested package that is absent, or there in another version than asked for, is an error.
#[async_trait]
pub trait Provisioner: Send + Sync + 'static {
    /// Returns the name that environments use: `apt`, `yum`.
    fn name(&self) -> &'static str;

    /// Tells why a request can never work with this provisioner, before anything is touched.
    fn accepts(&self, spec: &PackageSpec) -> Result<(), String>;

    /// Installs the packages and asks the database.
    async fn install(
        &self,
        cx: StepContext,
        root: &mut dyn Root,
        request: &PackageRequest,
        architecture: &Architecture,
    ) -> StepResult<Installed>;
}
