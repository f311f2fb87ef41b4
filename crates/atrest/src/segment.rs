//! Segments of the log. An encrypted segment has a prefix before its sectors.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

pub use vault::SECTOR_BYTES;
use vault::{KeyNumber, Kind, Prefix, Sectors, PREFIX_BYTES};

use crate::error::{refused, NOT_OPEN};
use crate::vaults::{draw_salt, vault_of};

/// The cipher of a segment.
pub struct Cipher {
    sectors: Sectors,
    number: KeyNumber,
}

/// Returns the cipher and the prefix of a new segment at this path; `None` if it is to be plain.
pub fn begin(path: &Path) -> io::Result<Option<(Cipher, Vec<u8>)>> {
    let Some(vault) = vault_of(path) else { return Ok(None) };
    let keyring = vault.keyring();
    let prefix = Prefix::new(Kind::Log, &keyring, draw_salt()?);
    let sectors = prefix.sectors(&keyring).map_err(refused)?;
    let cipher = Cipher { sectors, number: prefix.number() };
    Ok(Some((cipher, prefix.encode(&keyring).map_err(refused)?)))
}

/// Returns the cipher of a segment; `None` if it is plain.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if the segment is encrypted and cannot be read.
pub fn open(path: &Path, file: &std::fs::File) -> io::Result<Option<Cipher>> {
    let mut head = Vec::new();
    file.take(PREFIX_BYTES as u64).read_to_end(&mut head)?;
    if !Prefix::is_there(&head) {
        return Ok(None);
    }
    let vault = vault_of(path).ok_or_else(|| refused(NOT_OPEN))?;
    let keyring = vault.keyring();
    let prefix = Prefix::decode(&head, Kind::Log, &keyring).map_err(refused)?;
    let cipher = |prefix: Prefix| {
        let sectors = prefix.sectors(&keyring).map_err(refused)?;
        Ok(Cipher { sectors, number: prefix.number() })
    };
    prefix.map(cipher).transpose()
}

impl Cipher {
    /// Length of the prefix, in bytes.
    pub const PREFIX_BYTES: u64 = PREFIX_BYTES as u64;

    /// Returns the number of the segment's data key.
    pub fn key(&self) -> KeyNumber {
        self.number
    }

    /// Encrypts bytes that will be written at `offset` of the segment's content.
    ///
    /// # Errors
    /// Bytes that are not whole sectors.
    pub fn encrypt(&self, offset: u64, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let sector = SECTOR_BYTES as u64;
        if offset % sector != 0 || bytes.len() % SECTOR_BYTES != 0 {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a write of a part of a sector"));
        }
        self.sectors.encrypt(offset / sector, &mut bytes);
        Ok(bytes)
    }

    /// Fills `into` with the content at `offset`. `read` reads whole sectors of the file's content,
    /// and may be given sectors beyond those that hold `into`.
    pub fn read(
        &self,
        offset: u64,
        into: &mut [u8],
        read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let sector = SECTOR_BYTES as u64;
        let first = offset / sector;
        if offset % sector == 0 && into.len() % SECTOR_BYTES == 0 {
            read(into, offset)?;
            self.sectors.decrypt(first, into);
            return Ok(());
        }
        let skipped = (offset % sector) as usize;
        let mut whole = vec![0; (skipped + into.len()).next_multiple_of(SECTOR_BYTES)];
        read(&mut whole, first * sector)?;
        self.sectors.decrypt(first, &mut whole);
        into.copy_from_slice(&whole[skipped..skipped + into.len()]);
        Ok(())
    }
}
