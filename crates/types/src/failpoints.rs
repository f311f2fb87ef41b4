//! The macro that defines a crate's failpoints.

/// Defines `Failpoint`, an enum of defects that tests enable on purpose. A simulator or a test of
/// crashes must detect each of them, each a line or two away from the code that it breaks.
///
/// Without the crate's feature `failpoints`, `Failpoint::is_on` is a constant `false`, so that none
/// of the defects is compiled in. With it, one build contains all of them, and each thread enables
/// at most one in each crate.
#[macro_export]
macro_rules! failpoints {
    ($($(#[$attribute:meta])* $name:ident,)+) => {
        /// A defect that can be enabled on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Failpoint {
            $($(#[$attribute])* $name,)+
        }

        impl Failpoint {
            pub const ALL: &[Failpoint] = &[$(Failpoint::$name,)+];

            /// Enables `failpoint` on this thread, and disables any other of this crate.
            #[cfg(feature = "failpoints")]
            pub fn enable(failpoint: Option<Failpoint>) {
                ENABLED.set(failpoint);
            }

            #[cfg(feature = "failpoints")]
            pub(crate) fn is_on(self) -> bool {
                ENABLED.get() == Some(self)
            }

            #[cfg(not(feature = "failpoints"))]
            pub(crate) const fn is_on(self) -> bool {
                false
            }
        }

        #[cfg(feature = "failpoints")]
        thread_local! {
            static ENABLED: std::cell::Cell<Option<Failpoint>> = const { std::cell::Cell::new(None) };
        }
    };
}
