//! Settings of `check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::endpoints::RawEndpoints;
use super::meaning::RawMeaning;

/// Settings of `check` as written.
#[derive(Clone, Debug, Args)]
pub struct RawCheck {
    /// Files and directories.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Also say, in a line for each of Istio's objects, what of it is honoured: the fields that
    /// are not, and the resources that came of it.
    #[arg(long)]
    pub honoured: bool,
    /// Name the objects that a changed default of this release affects, and the setting that
    /// brings each former default back.
    #[arg(long)]
    pub upgrade: bool,
    /// The form of the findings.
    #[arg(long, default_value = "text", value_name = "FORM", value_enum)]
    pub output: CheckForm,
    /// Addresses that endpoints may have.
    #[command(flatten)]
    pub endpoints: RawEndpoints,
    /// How objects are read.
    #[command(flatten)]
    pub meaning: RawMeaning,
}

/// The form of findings about files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckForm {
    /// A line each, for people.
    Text,
    /// One object, for programs.
    Json,
    /// Workflow commands, by which GitHub shows findings beside the lines of a change.
    Github,
}
