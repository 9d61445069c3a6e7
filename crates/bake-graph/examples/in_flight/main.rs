//! Draws a bake in flight: two images registered and tagged, copies to three regions under way, one of them failed.
//!
//! `cargo run -p bake-graph --example in_flight FOLDER` writes `plan.svg` and `run.svg`, `.dot` and `.mmd` into the folder.

mod sample;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use bake_graph::Drawing;

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("usage: in_flight FOLDER");
        return ExitCode::from(2);
    };
    let plan =
        Drawing::of_plan(&sample::plan()).expect("the sample is a plan").titled("helloworld 1.4-2 on ec2_yum_linux");
    let run = Drawing::of_run(&sample::in_flight()).expect("the sample is a run");
    let written = write(Path::new(&folder), "plan", &plan).and_then(|()| write(Path::new(&folder), "run", &run));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write into `{}`: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path, name: &str, drawing: &Drawing) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{name}.svg")), drawing.to_svg())?;
    fs::write(folder.join(format!("{name}.dot")), drawing.to_dot())?;
    fs::write(folder.join(format!("{name}.mmd")), drawing.to_mermaid())
}
