//! How a script is run: started and watched (`launch`), on a phantom GPU (`phantom_run`), and what is said when nothing came of it.

pub(crate) mod diagnosis;
pub(crate) mod host_memory;
pub(crate) mod launch;
pub(crate) mod phantom_run;
pub(crate) mod plan_settings;
pub(crate) mod python;
pub(crate) mod record;
pub(crate) mod server;
