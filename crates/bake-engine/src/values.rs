//! The outputs of a run so far, in their journal form.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::live::Lives;

/// Outputs and live values of one run, by the place of their step.
pub(crate) struct RunValues {
    outputs: Mutex<Vec<Option<Arc<str>>>>,
    lives: Arc<Lives>,
}

impl RunValues {
    pub(crate) fn new(steps: usize) -> RunValues {
        RunValues { outputs: Mutex::new(vec![None; steps]), lives: Arc::default() }
    }

    pub(crate) fn get(&self, node: usize) -> Option<Arc<str>> {
        self.outputs().get(node).cloned().flatten()
    }

    pub(crate) fn set(&self, node: usize, json: Arc<str>) {
        self.outputs()[node] = Some(json);
    }

    /// Forgets an output, so that nothing outside a scope sees what came out of a scope that failed.
    pub(crate) fn forget(&self, node: usize) {
        self.outputs()[node] = None;
    }

    pub(crate) fn lives(&self) -> &Arc<Lives> {
        &self.lives
    }

    fn outputs(&self) -> MutexGuard<'_, Vec<Option<Arc<str>>>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
