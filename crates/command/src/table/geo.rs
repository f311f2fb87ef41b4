//! Table entries of the commands on places.

use types::THIRD_VERSION;

use crate::geo;
use crate::spec::{flags, CommandSpec, FieldSpec, Handler, KeySpec};

const READ_KEY: &[KeySpec] = &[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }];
const BY_PLACE_KEYS: &[KeySpec] = &[
    KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] },
    KeySpec { first: 6, last: KeySpec::BEHIND_STORE, step: 1, flags: &["OW", "update"] },
    KeySpec { first: 6, last: KeySpec::BEHIND_STOREDIST, step: 1, flags: &["OW", "update"] },
];
const BY_MEMBER_KEYS: &[KeySpec] = &[
    KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] },
    KeySpec { first: 5, last: KeySpec::BEHIND_STORE, step: 1, flags: &["OW", "update"] },
    KeySpec { first: 5, last: KeySpec::BEHIND_STOREDIST, step: 1, flags: &["OW", "update"] },
];
const SEARCH_COST: &str =
    "O(N+log(M)) where N is the number of places in and near the shape and M that of all places";

pub(super) static COMMANDS: [CommandSpec; 10] = [
    CommandSpec::new("geoadd", -5, flags::WRITE | flags::DENYOOM, Handler::Keyspace(geo::geoadd))
        .since_version(THIRD_VERSION)
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .fields(FieldSpec { first: 4, count: usize::MAX, step: 3 })
        .walks_tree()
        .categories(&["@geo"])
        .about(
            "geo",
            "3.2.0",
            "O(log(N)) for each item added, where N is the number of places",
            "Adds places, or moves them.",
            "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        ),
    CommandSpec::new("geodist", -4, flags::READONLY, Handler::Keyspace(geo::geodist))
        .since_version(THIRD_VERSION)
        .keys(READ_KEY)
        .fields(FieldSpec { first: 2, count: 2, step: 1 })
        .reads_few_rows()
        .categories(&["@geo"])
        .about(
            "geo",
            "3.2.0",
            "O(1)",
            "Returns the distance of two places.",
            "key member1 member2 [M | KM | FT | MI]",
        ),
    CommandSpec::new("geohash", -2, flags::READONLY, Handler::Keyspace(geo::geohash))
        .since_version(THIRD_VERSION)
        .keys(READ_KEY)
        .fields(FieldSpec::ALL)
        .reads_few_rows()
        .categories(&["@geo"])
        .about(
            "geo",
            "3.2.0",
            "O(1) for each member requested",
            "Returns the geohashes of places as text.",
            "key [member [member ...]]",
        ),
    CommandSpec::new("geopos", -2, flags::READONLY, Handler::Keyspace(geo::geopos))
        .since_version(THIRD_VERSION)
        .keys(READ_KEY)
        .fields(FieldSpec::ALL)
        .reads_few_rows()
        .categories(&["@geo"])
        .about(
            "geo",
            "3.2.0",
            "O(1) for each member requested",
            "Returns the coordinates of places.",
            "key [member [member ...]]",
        ),
    CommandSpec::new(
        "georadius",
        -6,
        flags::WRITE | flags::DENYOOM | flags::MOVABLEKEYS,
        Handler::Keyspace(geo::georadius),
    )
    .since_version(THIRD_VERSION)
    .keys(BY_PLACE_KEYS)
    .walks_tree()
    .categories(&["@geo"])
    .about(
        "geo",
        "3.2.0",
        SEARCH_COST,
        "Returns the places in a circle, or stores them.",
        "key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] \
         [COUNT count [ANY]] [ASC | DESC] [STORE storekey] [STOREDIST storedistkey]",
    ),
    CommandSpec::new("georadius_ro", -6, flags::READONLY, Handler::Keyspace(geo::georadius_ro))
        .since_version(THIRD_VERSION)
        .keys(READ_KEY)
        .walks_tree()
        .categories(&["@geo"])
        .about(
            "geo",
            "3.2.10",
            SEARCH_COST,
            "Returns the places in a circle.",
            "key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC]",
        ),
    CommandSpec::new(
        "georadiusbymember",
        -5,
        flags::WRITE | flags::DENYOOM | flags::MOVABLEKEYS,
        Handler::Keyspace(geo::georadiusbymember),
    )
    .since_version(THIRD_VERSION)
    .keys(BY_MEMBER_KEYS)
    .walks_tree()
    .categories(&["@geo"])
    .about(
        "geo",
        "3.2.0",
        SEARCH_COST,
        "Returns the places in a circle around a member, or stores them.",
        "key member radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
         [ASC | DESC] [STORE storekey] [STOREDIST storedistkey]",
    ),
    CommandSpec::new(
        "georadiusbymember_ro",
        -5,
        flags::READONLY,
        Handler::Keyspace(geo::georadiusbymember_ro),
    )
    .since_version(THIRD_VERSION)
    .keys(READ_KEY)
    .walks_tree()
    .categories(&["@geo"])
    .about(
        "geo",
        "3.2.10",
        SEARCH_COST,
        "Returns the places in a circle around a member.",
        "key member radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
         [ASC | DESC]",
    ),
    CommandSpec::new("geosearch", -7, flags::READONLY, Handler::Keyspace(geo::geosearch))
        .since_version(THIRD_VERSION)
        .keys(READ_KEY)
        .walks_tree()
        .categories(&["@geo"])
        .about(
            "geo",
            "6.2.0",
            SEARCH_COST,
            "Returns the places in a circle or rectangle.",
            "key [FROMMEMBER member | FROMLONLAT longitude latitude] [BYRADIUS radius unit | BYBOX width \
             height unit] [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        ),
    CommandSpec::new(
        "geosearchstore",
        -8,
        flags::WRITE | flags::DENYOOM,
        Handler::Keyspace(geo::geosearchstore),
    )
    .since_version(THIRD_VERSION)
    .keys(&[
        KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] },
        KeySpec { first: 2, last: 0, step: 1, flags: &["RO", "access"] },
    ])
    .categories(&["@geo"])
    .about(
        "geo",
        "6.2.0",
        SEARCH_COST,
        "Stores the places in a circle or rectangle.",
        "destination source [FROMMEMBER member | FROMLONLAT longitude latitude] [BYRADIUS radius unit | \
         BYBOX width height unit] [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
    ),
];
