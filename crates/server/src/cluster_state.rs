//! What this store knows of the cluster: the meta region's state where it holds a peer of it, and what
//! all stores have lately said.
