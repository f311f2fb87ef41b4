//! Commands on places, and `SORT`.

use super::{args, exact, Args, Generator, Step};

/// Keys of places. The last one does not exist. Other keys may hold members at one place, whose
/// order by distance is left open.
const PLACES: [&str; 4] = ["places", "places2", "{tag}places", "no-places"];
/// Lists and sorted sets of numbers, so that they can be sorted.
const NUMBERS: [&str; 2] = ["numbers", "ranked-numbers"];
const UNITS: [&str; 6] = ["m", "km", "ft", "mi", "KM", "parsec"];

impl Generator {
    pub(super) fn place_command(&mut self) -> Step {
        let key = self.places_key();
        exact(match self.chance.below(20) {
            0..=5 if key != PLACES[PLACES.len() - 1].as_bytes() => self.add_places(key),
            6 => args!["GEODIST", key, self.place(), self.place(), self.unit()],
            7 => args!["GEODIST", key, self.place(), self.place()],
            8 => args!["GEOHASH", key, self.place(), self.place()],
            9 => args!["GEOPOS", key, self.place(), self.place()],
            10..=13 => self.search("GEOSEARCH", None, key),
            14..=15 => {
                let destination = self.places_key();
                self.search("GEOSEARCHSTORE", Some(destination), key)
            }
            16..=17 => {
                let name = self.chance.pick(&["GEORADIUS", "GEORADIUS_RO"]);
                let mut args =
                    args![name, key, self.longitude(), self.latitude(), self.metres(), self.unit()];
                self.options(&mut args, true, name == "GEORADIUS");
                args
            }
            _ => {
                let name = self.chance.pick(&["GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO"]);
                let mut args = args![name, key, self.place(), self.metres(), self.unit()];
                self.options(&mut args, true, name == "GEORADIUSBYMEMBER");
                args
            }
        })
    }

    fn places_key(&mut self) -> Vec<u8> {
        let count = if self.chance.percent(5) { PLACES.len() } else { PLACES.len() - 1 };
        self.chance.pick(&PLACES[..count]).as_bytes().to_vec()
    }

    fn place(&mut self) -> Vec<u8> {
        format!("place{}", self.chance.below(60)).into_bytes()
    }

    fn unit(&mut self) -> Vec<u8> {
        let valid = if self.chance.percent(97) { UNITS.len() - 1 } else { UNITS.len() };
        self.chance.pick(&UNITS[..valid]).as_bytes().to_vec()
    }

    /// Half of the places are close together, and some are on an edge of the map. No two places are
    /// the same.
    fn degrees(&mut self, most: usize, middle: f64, edge: Option<&str>) -> Vec<u8> {
        match (self.chance.below(40), edge) {
            (0, Some(edge)) => edge.as_bytes().to_vec(),
            (1, Some(edge)) => format!("-{edge}").into_bytes(),
            (..=20, _) => {
                format!("{:.6}", self.chance.below(2 * most * 10_000) as f64 / 1e4 - most as f64).into_bytes()
            }
            _ => format!("{:.7}", middle + self.chance.below(1_000_000) as f64 / 1e6).into_bytes(),
        }
    }

    fn longitude(&mut self) -> Vec<u8> {
        self.degrees(180, 13.0, None)
    }

    fn latitude(&mut self) -> Vec<u8> {
        self.degrees(85, 37.0, Some("85.05112878"))
    }

    fn metres(&mut self) -> Vec<u8> {
        let below = 10usize.pow(1 + self.chance.below(7) as u32);
        let metres = self.chance.below(below);
        if self.chance.percent(50) { format!("{metres}.5") } else { metres.to_string() }.into_bytes()
    }

    fn add_places(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["GEOADD", key];
        if self.chance.percent(20) {
            args.push(self.chance.pick(&["NX", "XX", "CH"]).into());
        }
        for _ in 0..1 + self.chance.below(8) {
            args.extend([self.longitude(), self.latitude(), self.place()]);
        }
        args
    }

    fn search(&mut self, name: &str, destination: Option<Vec<u8>>, key: Vec<u8>) -> Args {
        let stores = destination.is_some();
        let mut args = args![name];
        args.extend(destination);
        args.push(key);
        match self.chance.percent(50) {
            true => args.extend([b"FROMMEMBER".to_vec(), self.place()]),
            false => args.extend([b"FROMLONLAT".to_vec(), self.longitude(), self.latitude()]),
        }
        match self.chance.percent(50) {
            true => args.extend([b"BYRADIUS".to_vec(), self.metres(), self.unit()]),
            false => args.extend([b"BYBOX".to_vec(), self.metres(), self.metres(), self.unit()]),
        }
        self.options(&mut args, !stores, false);
        args
    }

    /// Adds options. Distances are not stored: their last digits may differ.
    fn options(&mut self, args: &mut Args, shows: bool, stores: bool) {
        if self.chance.percent(50) {
            args.push(self.chance.pick(&["ASC", "DESC", "asc"]).into());
        }
        if self.chance.percent(30) {
            args.extend([b"COUNT".to_vec(), (1 + self.chance.below(9)).to_string().into_bytes()]);
            if self.chance.percent(30) {
                args.push(b"ANY".to_vec());
            }
        }
        for word in ["WITHDIST", "WITHCOORD", "WITHHASH"] {
            if shows && self.chance.percent(25) {
                args.push(word.into());
            }
        }
        if stores && self.chance.percent(25) {
            args.extend([b"STORE".to_vec(), self.places_key()]);
        }
    }

    pub(super) fn sort_command(&mut self) -> Step {
        let key = match self.chance.below(8) {
            0 => self.list_key(),
            _ => self.chance.pick(&NUMBERS).as_bytes().to_vec(),
        };
        exact(match self.chance.below(12) {
            0..=1 => {
                let mut args = args!["RPUSH", NUMBERS[0]];
                args.extend((0..1 + self.chance.below(9)).map(|_| self.number_of(30)));
                args
            }
            2..=3 => {
                let mut args = args!["ZADD", NUMBERS[1]];
                for _ in 0..1 + self.chance.below(9) {
                    args.extend([self.number_of(1000), self.number_of(30)]);
                }
                args
            }
            4 => args!["SET", format!("weight-{}", self.chance.below(30)), self.float()],
            5 => args!["HSET", format!("facts-{}", self.chance.below(30)), "weight", self.number_of(50)],
            6 => args!["DEL", self.chance.pick(&NUMBERS)],
            _ => self.sort(key),
        })
    }

    fn sort(&mut self, key: Vec<u8>) -> Args {
        let mut args = args![self.chance.pick(&["SORT", "SORT", "SORT_RO"]), key];
        // The order of elements with equal texts of other keys is left open.
        let by = self.chance.below(6);
        match by {
            0 => args.extend([b"BY".to_vec(), b"weight-*".to_vec()]),
            1 => args.extend([b"BY".to_vec(), b"facts-*->weight".to_vec()]),
            2 => {
                args.extend([b"by".to_vec(), b"nosort".to_vec()]);
                if self.chance.percent(20) {
                    args.extend([b"BY".to_vec(), b"weight-*".to_vec()]);
                }
            }
            3 => args.push(b"ALPHA".to_vec()),
            _ => {}
        }
        if self.chance.percent(40) {
            args.push(self.chance.pick(&["DESC", "ASC", "desc"]).into());
        }
        if self.chance.percent(40) {
            let (start, count) = (self.chance.below(12) as i64 - 2, self.chance.below(12) as i64 - 2);
            args.extend([b"LIMIT".to_vec(), start.to_string().into_bytes(), count.to_string().into_bytes()]);
        }
        for pattern in ["#", "weight-*", "facts-*->weight", "nostar"] {
            if self.chance.percent(15) {
                args.extend([b"GET".to_vec(), pattern.into()]);
            }
        }
        if args[0] == b"SORT" && self.chance.percent(30) {
            args.extend([b"STORE".to_vec(), b"sorted".to_vec()]);
        }
        args
    }
}
