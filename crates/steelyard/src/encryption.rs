//! The settings of encryption at rest, which the store and the programs that read its files share.

use std::path::PathBuf;

use atrest::{Settings, Source};

/// The master key's place on a command line.
#[derive(clap::Args)]
pub struct KeyOptions {
    /// The store's encryption-key-file, if its directory is encrypted
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<String>,
    /// The store's encryption-key-command, if its directory is encrypted
    #[arg(long, value_name = "PROGRAM ARGS")]
    encryption_key_command: Option<String>,
}

impl KeyOptions {
    pub fn settings(self) -> Result<Option<Settings>, String> {
        settings(self.encryption_key_file, self.encryption_key_command, None)
    }
}

/// Returns the settings. An empty text counts as none.
pub fn settings(
    file: Option<String>,
    command: Option<String>,
    old_file: Option<String>,
) -> Result<Option<Settings>, String> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let old_key = given(old_file).map(PathBuf::from);
    let key = match (given(file), given(command)) {
        (Some(_), Some(_)) => {
            return Err("encryption-key-file and encryption-key-command exclude each other".into());
        }
        (Some(path), None) => Source::File(path.into()),
        (None, Some(command)) => Source::Command(command),
        (None, None) if old_key.is_some() => {
            return Err("encryption-old-key-file needs encryption-key-file or encryption-key-command".into());
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Settings { key, old_key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_of_the_master_key_is_given_or_none() {
        let of = |texts: [&str; 3]| {
            let [file, command, old] = texts.map(|text| Some(text.to_owned()));
            settings(file, command, old)
        };
        assert_eq!(of(["", "", ""]), Ok(None));
        let file = Settings { key: Source::File("k".into()), old_key: Some("o".into()) };
        assert_eq!(of(["k", "", "o"]), Ok(Some(file)));
        let command = Settings { key: Source::Command("fetch key".into()), old_key: None };
        assert_eq!(of(["", "fetch key", ""]), Ok(Some(command)));
        assert!(of(["k", "fetch", ""]).is_err() && of(["", "", "o"]).is_err());
    }
}
