//! The domain: plugin traits, templates, and the pipeline that turns an environment into a plan.
