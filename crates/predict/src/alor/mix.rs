//! The clusters of the figures: the stores of a mix, and the data and capacity of each store.

use super::scale::Scale;

const HYBRID: &str = "hybrid";

/// The speeds of the `nvm` device in bytes per second, and its size in bytes if stores have no
/// capacity. The size is that of the paper's device.
const NVM_WRITE: f64 = 5e9;
const NVM_READ: f64 = 8e9;
const NVM_BYTES: f64 = 5e9;

/// The clusters of ALOR §4.7. They hold 5 GB on four stores, half of the paper's usual 10 GB.
const HYBRID_COMPARISON: [&str; 2] = ["4Y", "1N3P"];
const HYBRID_DATA: f64 = 0.5;
/// Capacity of a plain SSD behind a cache, as a part of a store's usual capacity: 3.75 GB of 5 GB.
const BEHIND_A_CACHE: f64 = 0.75;

/// Returns the devices' names, in the order in which the mix lists them: `1N2H3P` begins with
/// `nvm`.
pub fn devices(mix: &str) -> Result<Vec<&'static str>, String> {
    let wrong = || format!("'{mix}' is no mix of devices: write counts of N, H, P and Y, as in 1N2H3P");
    let mut devices = Vec::new();
    let mut rest = mix;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: usize = rest[..digits].parse().map_err(|_| wrong())?;
        let name = match rest.as_bytes()[digits] {
            b'N' => "nvm",
            b'H' => "high-end-ssd",
            b'P' => "plain-ssd",
            b'Y' => HYBRID,
            _ => return Err(wrong()),
        };
        if number > 50 {
            return Err(wrong());
        }
        devices.extend(std::iter::repeat_n(name, number));
        rest = &rest[digits + 1..];
    }
    if devices.len() < 3 {
        return Err(format!("'{mix}' has {} stores, but three copies need at least three", devices.len()));
    }
    Ok(devices)
}

/// Returns the devices of a mix with their sizes and speeds for a run.
///
/// The caches of all hybrid stores together are one `nvm` device, because the unequal stores beside
/// them have one. Each cache gets an equal part of its bandwidths and of its size. (ALOR §4.7
/// states only the size of the parts.) Latencies are not divided: a part of a device answers no
/// sooner.
pub fn scaled_devices(mix: &str, scale: &Scale) -> Result<Vec<String>, String> {
    let names = devices(mix)?;
    let caches = names.iter().filter(|name| **name == HYBRID).count().max(1) as f64;
    let bytes = scale.capacity_bytes().map_or(NVM_BYTES * scale.data_factor, |bytes| bytes as f64);
    let hybrid = format!(
        "{HYBRID},cache={}B,cache-write={}B/s,cache-read={}B/s",
        (bytes / caches) as u64,
        (NVM_WRITE / caches) as u64,
        (NVM_READ / caches) as u64
    );
    Ok(names.into_iter().map(|name| if name == HYBRID { hybrid.clone() } else { name.to_owned() }).collect())
}

/// Returns the number of records that a cluster of the mix is loaded with.
pub fn records(mix: &str, scale: &Scale) -> Result<u64, String> {
    let stores = devices(mix)?.len();
    Ok(match HYBRID_COMPARISON.contains(&mix) {
        true => scale.records_of(HYBRID_DATA),
        false => scale.records(stores),
    })
}

/// Returns the bytes of live user data that each store of the mix may hold. `None` for as much as
/// its file system holds.
pub fn capacity_bytes(mix: &str, scale: &Scale) -> Option<u64> {
    let is_behind_a_cache = mix == HYBRID_COMPARISON[0];
    let part = if is_behind_a_cache { BEHIND_A_CACHE } else { 1.0 };
    scale.capacity_bytes().map(|bytes| (bytes as f64 * part).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_as_counts_of_devices() {
        assert_eq!(devices("1N2H3P").unwrap()[..3], ["nvm", "high-end-ssd", "high-end-ssd"]);
        assert!(devices("1N").is_err() && devices("3").is_err() && devices("3X").is_err());
    }

    #[test]
    fn the_caches_of_hybrid_stores_are_one_nvm_device() {
        let scale = Scale { data_factor: 0.01, capacity_headroom: 0.0, ..Scale::named("quick").unwrap() };
        let stores = scaled_devices("6Y", &scale).unwrap();
        assert_eq!(stores.len(), 6);
        assert_eq!(stores[5], "hybrid,cache=8333333B,cache-write=833333333B/s,cache-read=1333333333B/s");
        let mixed = scaled_devices("1N2Y", &scale).unwrap();
        assert_eq!(mixed[0], "nvm");
        assert_eq!(mixed[2], "hybrid,cache=25000000B,cache-write=2500000000B/s,cache-read=4000000000B/s");
        assert!(scaled_devices("1Y", &scale).is_err());
        let roomy = Scale { capacity_headroom: 1.2, ..scale };
        assert!(scaled_devices("6Y", &roomy).unwrap()[0].starts_with("hybrid,cache=10000000B,"));
    }

    /// ALOR §4.7: four stores hold 5 GB. Each has 5 GB of room, or 3.75 GB behind 1.25 GB of cache.
    #[test]
    fn hybrid_stores_have_the_rooms_of_the_paper() {
        let scale = Scale { data_factor: 0.01, capacity_headroom: 1.0, ..Scale::named("quick").unwrap() };
        assert_eq!(scaled_devices("4Y", &scale).unwrap()[3].split(',').nth(1), Some("cache=12500000B"));
        assert_eq!(
            (capacity_bytes("4Y", &scale), capacity_bytes("1N3P", &scale)),
            (Some(37_500_000), Some(50_000_000))
        );
        assert_eq!((records("4Y", &scale), records("1N3P", &scale)), (Ok(50_000), Ok(50_000)));
        let unlimited = Scale { capacity_headroom: 0.0, ..scale };
        assert_eq!(capacity_bytes("4Y", &unlimited), None);
    }

    /// ALOR §4.5: 6.67, 8.33 and 10 GB on four, five and six stores.
    #[test]
    fn data_is_in_proportion_to_stores() {
        let scale = Scale { data_factor: 0.001, ..Scale::named("quick").unwrap() };
        let of = |mix: &str| records(mix, &scale).unwrap();
        assert_eq!(["1H3P", "1N1H3P", "1N2H3P"].map(of), [6_667, 8_333, 10_000]);
        assert_eq!(of("6Y"), 10_000);
        assert!(records("4", &scale).is_err());
    }
}
