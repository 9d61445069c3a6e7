//! Fakes, contract tests, and the packages and base images that tests bake with.
