//! The parts of the store that device measurement and the watch need.

use std::sync::Arc;

use super::OwnCapability;
use crate::cluster_state::ClusterState;
use crate::config::Config;
use crate::disk::Disk;
use crate::ends::Ends;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::regions::Regions;

#[derive(Clone)]
pub struct Measurer {
    pub config: Arc<Config>,
    pub own: Arc<OwnCapability>,
    pub disk: Arc<Disk>,
    pub metrics: Arc<Metrics>,
    /// The activity of other stores on the device, and the store whose turn it is.
    pub cluster: Arc<ClusterState>,
    pub membership: Arc<Membership>,
    pub regions: Arc<Regions>,
    pub ends: Arc<Ends>,
}
