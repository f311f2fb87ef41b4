//! Failpoints of commands that are executed in parts: defects that the simulator must detect.

types::failpoints! {
    /// A part and the end go on although a source has changed since the beginning.
    ChangedSourceIgnored,
    /// A removal that begins again also returns the members that its earlier parts have found.
    FoundMembersKept,
}
