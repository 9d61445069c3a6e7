//! Steps, graph, scheduler, journal, events: runs a plan and remembers what it changed.
