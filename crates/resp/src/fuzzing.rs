//! Bodies of the fuzz targets, called by `fuzz/` and by a short seeded run in the tests.
