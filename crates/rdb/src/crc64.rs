//! The checksum of payloads and files: CRC-64 with Jones's polynomial, reflected, without an
//! initial or final inversion.

/// The polynomial 0xad93d23594c935a9 with its bits reversed.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
const WIDTH: usize = 8;

/// `TABLES[n][byte]` is the checksum of a byte followed by `n` zero bytes.
static TABLES: [[u64; 256]; WIDTH] = tables();

const fn tables() -> [[u64; 256]; WIDTH] {
    let mut tables = [[0u64; 256]; WIDTH];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < WIDTH {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// Returns the checksum of bytes that follow bytes with the checksum `crc`, which is 0 at the
/// beginning.
pub fn crc64(mut crc: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(WIDTH);
    for word in &mut words {
        let mixed = crc ^ u64::from_le_bytes(word.try_into().expect("eight bytes"));
        crc = 0;
        for (at, byte) in mixed.to_le_bytes().into_iter().enumerate() {
            crc ^= TABLES[WIDTH - 1 - at][usize::from(byte)];
        }
    }
    for byte in words.remainder() {
        crc = TABLES[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_the_check_string_is_that_of_the_catalogue() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..200u8).collect();
        for at in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..at]), &bytes[at..]), crc64(0, &bytes));
        }
    }
}
