//! The story that the demonstration tells, chapter by chapter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use client::admin::{
    AdminClient, AdminFailure, OperatorRow, OperatorsQuery, PolicyRequest, RegionRow, RegionsQuery, StoreRow,
    StoresQuery,
};
use client::cluster_client::{ClusterClient, Patience};
use client::table::{bytes, count};

use super::chapter::Chapter;
use super::gauge::Gauge;
use super::load::{Load, Window};
use super::painter::Painter;
use super::records::{self, Record};
use super::screen::{self, plural, Line, Moves, Scene, Score, StoreLine, Tone};
use super::waits::{waits, Syncs};
use super::{kill, loading, moves, verify, Demo};
use crate::ctl::unix_ms;
use crate::playground::cluster::{choose_place, Cluster};
use crate::playground::election::{self, ZooKeeper};
use crate::playground::layout::{parse_devices, Layout};
use crate::playground::START_PATIENCE;

/// Maximum time until the cluster has settled under a policy. After that the measurement begins
/// regardless.
const SETTLE_PATIENCE: Duration = Duration::from_secs(45);
/// Time without operators and changes of leaders and copies after which the cluster has settled.
const QUIET: Duration = Duration::from_secs(3);
/// Time under load before each measurement.
const WARM_UP: Duration = Duration::from_secs(2);
/// Interval between two looks at the cluster.
pub const LOOK: Duration = Duration::from_millis(300);
/// Maximum time until a store answers an administrator's request. Under load, or while the meta
/// region has no leader, an answer may take seconds.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);
/// Number of moves that are explained.
const MOVES_TOLD: usize = 3;

/// The state of the cluster at one moment, as one of its stores knows it.
pub struct Glance {
    pub stores: Vec<StoreRow>,
    pub regions: Vec<RegionRow>,
}

pub struct Story {
    pub cluster: Cluster,
    /// Dropped after the stores.
    zookeeper: Option<ZooKeeper>,
    pub client: Arc<ClusterClient>,
    pub records: Arc<Vec<Record>>,
    pub scene: Scene,
    pub painter: Painter,
    /// Description of the source of the records.
    source: String,
    gauges: Vec<Gauge>,
    started: Instant,
}

/// Runs the whole demonstration. A missing acknowledged write is an error.
pub async fn show(demo: Demo, painter: Painter) -> anyhow::Result<()> {
    let mut story = Story::begin(&demo, painter).await?;
    story.load_records().await?;
    let load = Load::start(story.client.clone(), story.records.clone(), usize::from(demo.clients));
    let window = Duration::from_secs(demo.seconds_per_policy);
    story.open(Chapter::Even);
    story.switch("even", &load).await?;
    story.scene.even = Some(story.measure(&load, window).await?);
    story.open(Chapter::Adaptive);
    let since = unix_ms();
    story.switch("adaptive", &load).await?;
    story.learn_moves(since).await?;
    story.scene.adaptive = Some(story.measure(&load, window).await?);
    story.tell(&screen::gain(&story.scene));
    story.open(Chapter::Kill);
    kill::kill(&mut story, &load).await?;
    story.open(Chapter::Proof);
    story.scene.ops_per_s = None;
    let ledger = load.stop(story.records.len()).await?;
    let holds = verify::verify(&mut story, &ledger).await;
    ensure!(holds, "acknowledged writes are missing or were not read back; see above");
    if demo.once {
        return Ok(());
    }
    story.serve(demo.port).await
}

impl Story {
    async fn begin(demo: &Demo, painter: Painter) -> anyhow::Result<Story> {
        let started = Instant::now();
        let devices = parse_devices(&demo.devices, None)?;
        let layout = Layout {
            stores: devices.len().try_into()?,
            port: demo.port,
            cluster_enabled: true,
            regions: demo.regions,
            replicas: 3,
            devices,
            device_speed: demo.device_speed,
        };
        let title = format!(
            "Steelyard demo: {} stores, emulated devices at {} speed, {} regions x {} copies, {} clients",
            layout.stores,
            speed(demo.device_speed),
            layout.regions,
            layout.replicas,
            demo.clients
        );
        let scene = Scene {
            title,
            chapter: Chapter::Start,
            status: String::new(),
            elapsed: Duration::ZERO,
            stores: Vec::new(),
            waits: Vec::new(),
            regions: usize::from(layout.regions),
            ops_per_s: None,
            even: None,
            adaptive: None,
            moves: Moves::default(),
            kill: Vec::new(),
            proof: None,
            hints: Vec::new(),
        };
        let (place, note) = choose_place(demo.dir.as_deref(), true)?;
        let mut flags = vec!["--policy".into(), "even".into()];
        let zookeeper = ZooKeeper::start_for(demo.election.as_deref(), &mut flags)?;
        let cluster = Cluster::start(layout, place, &flags)?;
        let seeds = cluster.stores.iter().map(|store| store.member.client).collect();
        let controls = (0..cluster.stores.len()).map(|id| cluster.dir().join(format!("store-{id}.device")));
        let mut story = Story {
            gauges: controls.map(|control| Gauge::new(&control)).collect(),
            client: Arc::new(ClusterClient::new(seeds, Patience::default())),
            cluster,
            zookeeper,
            records: Arc::default(),
            source: String::new(),
            scene,
            painter,
            started,
        };
        story.painter.tell(&screen::wrapped(&story.scene.title, ""));
        story.open(Chapter::Start);
        let speed = speed(demo.device_speed);
        story.announce(&format!("At {speed} speed devices, and not this machine's CPU, are the limit."));
        story.say(&format!(
            "The devices are emulated at {speed} of their real speed, so that they and not this machine's CPU \
             are the limit: {}.",
            story.cluster.layout.devices.join(", ")
        ));
        story.say(&(note.replacen("data", "Data", 1) + "."));
        story.cluster.wait_until_ready(START_PATIENCE).await?;
        if let Some(election) = &demo.election {
            election::set(&story.cluster, election).await?;
        }
        if let Some(zookeeper) = &story.zookeeper {
            let address = zookeeper.address();
            story.say(&format!(
                "The candidates of elections are chosen by the stores' znodes below /steelyard in the ZooKeeper \
                 at {address}."
            ));
        }
        story.say(&format!("All stores serve after {:.1} s.", started.elapsed().as_secs_f64()));
        let (mut records, source) = tokio::task::spawn_blocking(records::find).await??;
        records.truncate(demo.records);
        ensure!(!records.is_empty(), "there are no records to load");
        story.records = Arc::new(records);
        story.source = source;
        story.open(Chapter::Load);
        let total: usize = story.records.iter().map(Record::bytes).sum();
        story.say(&format!(
            "{} of {}, {}, one hash each.",
            plural(story.records.len(), "record", "records"),
            story.source,
            bytes(total as f64)
        ));
        Ok(story)
    }

    async fn load_records(&mut self) -> anyhow::Result<()> {
        self.look().await?;
        let started = Instant::now();
        let all = self.records.len();
        let (client, records) = (self.client.clone(), self.records.clone());
        let (scene, painter) = (&mut self.scene, &mut self.painter);
        let (begun, whole, source) = (self.started, count(all as f64), &self.source);
        loading::load(&client, &records, |written| {
            scene.status = format!("loading {source}: {} of {whole}", count(written as f64));
            scene.elapsed = begun.elapsed();
            painter.paint(scene);
        })
        .await?;
        let seconds = started.elapsed().as_secs_f64();
        self.say(&format!("Loaded in {seconds:.1} s, {} records/s.", count(all as f64 / seconds)));
        Ok(())
    }

    /// Switches the policy, and waits until the cluster is quiet.
    async fn switch(&mut self, policy: &'static str, load: &Load) -> anyhow::Result<()> {
        self.with_admin(move |admin| admin.ask(&PolicyRequest { policy: policy.to_owned() })).await?;
        match self.settle("leaders and copies move", SETTLE_PATIENCE, Some(load)).await? {
            Some(moved) if moved < LOOK => self.say("Leaders and copies are in place."),
            Some(moved) => {
                self.say(&format!("Leaders and copies are in place after {:.1} s.", moved.as_secs_f64()));
            }
            None => self.say("Leaders or copies still move when the measurement begins."),
        }
        Ok(())
    }

    /// Measures under load, and shows the stores at the end.
    async fn measure(&mut self, load: &Load, time: Duration) -> anyhow::Result<Score> {
        self.watch("warming up", WARM_UP, load).await?;
        load.turn();
        let stores = self.watch("measuring", time, load).await?;
        let (window, took) = load.turn();
        self.say(&format!("Measured for {:.0} s. The stores at the end:", took.as_secs_f64()));
        self.tell(&screen::stores(&self.scene));
        Ok(score(&window, took, &stores))
    }

    /// Waits until no operator is in flight and leaders and copies no longer move. Returns the time
    /// until then, or `None` if it took longer than `patience`.
    pub async fn settle(
        &mut self,
        status: &str,
        patience: Duration,
        load: Option<&Load>,
    ) -> anyhow::Result<Option<Duration>> {
        let started = Instant::now();
        let mut places = None;
        let mut quiet_since = Instant::now();
        let mut pace = Pace::new(load);
        while started.elapsed() < patience {
            let glance = self.look().await?;
            let peers = |region: &RegionRow| region.peers.iter().map(|peer| peer.store).collect::<Vec<_>>();
            let now: Vec<_> =
                glance.regions.iter().map(|region| (region.id, region.leader, peers(region))).collect();
            // The leader of the meta region answers, and it may be changing.
            let operators = self.with_admin(|admin| admin.ask(&OperatorsQuery { history: false })).await;
            let under_way = operators.map(|operators| operators.len());
            if places.as_ref() != Some(&now) || !matches!(under_way, Ok(0)) {
                places = Some(now);
                quiet_since = Instant::now();
            }
            if quiet_since.elapsed() >= QUIET {
                return Ok(Some(quiet_since.duration_since(started)));
            }
            self.scene.ops_per_s = pace.of(load);
            self.status(&match under_way {
                Ok(number) if number > 0 => format!("{status}: {number} under way"),
                _ => status.to_owned(),
            });
            tokio::time::sleep(LOOK).await;
        }
        Ok(None)
    }

    /// Shows the stores for some time. Returns their last known state.
    pub async fn watch(
        &mut self,
        status: &str,
        time: Duration,
        load: &Load,
    ) -> anyhow::Result<Vec<StoreRow>> {
        let until = Instant::now() + time;
        let mut pace = Pace::new(Some(load));
        loop {
            let stores = self.look().await?.stores;
            let left = until.saturating_duration_since(Instant::now());
            self.scene.ops_per_s = pace.of(Some(load));
            self.status(&format!("{status}: {:.0} s left", left.as_secs_f64().ceil()));
            if left.is_zero() {
                return Ok(stores);
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    /// Returns the regions that a running store leads, as the store reports.
    pub async fn led(&self) -> anyhow::Result<BTreeSet<u64>> {
        let running = self.cluster.stores.iter().filter(|store| store.pid().is_some());
        let admins: Vec<(u64, AdminClient)> = running.map(|store| (store.member.id, store.admin())).collect();
        let led = tokio::task::spawn_blocking(move || {
            let mut led = BTreeSet::new();
            for (id, admin) in &admins {
                let regions = admin.ask(&RegionsQuery {}).unwrap_or_default();
                led.extend(regions.iter().filter(|row| row.leader == Some(*id)).map(|row| row.id));
            }
            led
        });
        Ok(led.await?)
    }

    async fn learn_moves(&mut self, since_unix_ms: u64) -> anyhow::Result<()> {
        let rows = self.with_admin(|admin| admin.ask(&OperatorsQuery { history: true })).await?;
        let moved: Vec<OperatorRow> = rows
            .into_iter()
            .filter(|row| row.started_unix_ms >= since_unix_ms && moves::is_move(row))
            .collect();
        let leaders = moved.iter().filter(|row| row.kind == "transfer-leader").count();
        let device_of = |id: u64| {
            let store = self.cluster.stores.iter().find(|store| store.member.id == id);
            store.map(|store| store.member.device.clone()).unwrap_or_default()
        };
        let told = moves::choose(&moved, MOVES_TOLD, device_of);
        self.scene.moves = Moves { leaders, copies: moved.len() - leaders, told };
        self.tell(&screen::moves(&self.scene.moves));
        self.gap();
        self.paint();
        Ok(())
    }

    async fn serve(&mut self, port: u16) -> anyhow::Result<()> {
        self.scene.hints = vec![
            format!("Try: redis-cli -c -p {port} hgetall pkg:bash"),
            format!(
                "     steelyard ctl --port {port} explain 3      (and stores, regions, operators --history)"
            ),
        ];
        for hint in self.scene.hints.clone() {
            self.say(&hint);
        }
        self.say("The stores serve until Ctrl-C.");
        loop {
            // If a user kills a store by hand, the demonstration continues.
            let _ = self.look().await;
            self.status("The stores serve until Ctrl-C.");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks for the state of the cluster and puts it into the scene.
    pub async fn look(&mut self) -> anyhow::Result<Glance> {
        let glance = self
            .with_admin(|admin| {
                Ok(Glance { stores: admin.ask(&StoresQuery {})?, regions: admin.ask(&RegionsQuery {})? })
            })
            .await?;
        let gauges = &mut self.gauges;
        let line = |row: &StoreRow| {
            let gauge = gauges.get_mut(row.id as usize);
            let (busy, sync_us) = gauge.map_or((None, None), |gauge| (gauge.busy(), gauge.sync_us()));
            StoreLine {
                id: row.id,
                device: row.device.clone(),
                sync_us,
                is_up: row.state != "down",
                leaders: row.leaders,
                copies: row.regions,
                busy,
                ops_per_s: row.ops_per_s,
            }
        };
        self.scene.stores = glance.stores.iter().map(line).collect();
        let syncs = |store: &StoreLine| {
            let syncs = Syncs { device: store.device.clone(), sync_us: store.sync_us?, is_up: store.is_up };
            Some((store.id, syncs))
        };
        self.scene.waits = waits(&glance.regions, &self.scene.stores.iter().filter_map(syncs).collect());
        Ok(glance)
    }

    /// Asks the running stores in turn, repeatedly, until one answers. The HTTP client blocks, so
    /// it has a thread of its own.
    /// Returns how often ZooKeeper's znodes had a peer campaign, on the stores other than one.
    /// `None` if elections do without ZooKeeper.
    pub async fn campaigns_by_znodes(&self, without: usize) -> anyhow::Result<Option<u64>> {
        if self.zookeeper.is_none() {
            return Ok(None);
        }
        let others = self.cluster.stores.iter().enumerate().filter(|(store, _)| *store != without);
        let admins: Vec<AdminClient> = others.map(|(_, store)| store.admin()).collect();
        let count =
            move || admins.iter().map(|admin| admin.counter("elections_stood")).sum::<Result<u64, _>>();
        Ok(Some(tokio::task::spawn_blocking(count).await??))
    }

    async fn with_admin<T: Send + 'static>(
        &self,
        request: impl Fn(&AdminClient) -> Result<T, AdminFailure> + Send + 'static,
    ) -> anyhow::Result<T> {
        let running = self.cluster.stores.iter().filter(|store| store.pid().is_some());
        let admins: Vec<AdminClient> = running.map(|store| store.admin()).collect();
        let deadline = Instant::now() + ADMIN_PATIENCE;
        tokio::task::spawn_blocking(move || loop {
            let mut last = None;
            for admin in &admins {
                match request(admin) {
                    Ok(answer) => return Ok(answer),
                    Err(failure) => last = Some(failure),
                }
            }
            let Some(failure) = last else { bail!("no store runs") };
            if Instant::now() >= deadline {
                return Err(failure.into());
            }
            std::thread::sleep(LOOK);
        })
        .await?
    }

    pub fn open(&mut self, chapter: Chapter) {
        self.scene.chapter = chapter;
        self.scene.status.clear();
        let number = Chapter::ALL.iter().position(|known| *known == chapter).unwrap_or(0) + 1;
        self.gap();
        self.painter.tell(&[Line::new(
            Tone::Title,
            format!("== {number}/{} {}", Chapter::ALL.len(), chapter.name()),
        )]);
        self.say(chapter.explanation());
        self.paint();
    }

    /// Shows the present step on a terminal.
    pub fn status(&mut self, text: &str) {
        text.clone_into(&mut self.scene.status);
        self.scene.elapsed = self.started.elapsed();
        self.painter.paint(&self.scene);
    }

    /// Shows the present step on a terminal immediately.
    pub fn announce(&mut self, text: &str) {
        text.clone_into(&mut self.scene.status);
        self.paint();
    }

    pub fn paint(&mut self) {
        self.scene.elapsed = self.started.elapsed();
        self.painter.paint_now(&self.scene);
    }

    /// Prints a panel below an empty line if there is no terminal.
    pub fn tell(&self, lines: &[Line]) {
        self.gap();
        self.painter.tell(lines);
    }

    /// Prints an empty line if there is no terminal.
    fn gap(&self) {
        self.painter.tell(&[Line::default()]);
    }

    /// Prints a sentence if there is no terminal.
    pub fn say(&self, text: &str) {
        self.painter.say(text);
    }
}

/// The rate of answers between two looks.
struct Pace {
    answered: u64,
    at: Instant,
    rate: Option<f64>,
}

impl Pace {
    fn new(load: Option<&Load>) -> Pace {
        Pace { answered: load.map_or(0, Load::answered), at: Instant::now(), rate: None }
    }

    /// Returns the rate over about the last second.
    fn of(&mut self, load: Option<&Load>) -> Option<f64> {
        let answered = load?.answered();
        let seconds = self.at.elapsed().as_secs_f64();
        if seconds >= 1.0 {
            self.rate = Some((answered - self.answered) as f64 / seconds);
            (self.answered, self.at) = (answered, Instant::now());
        }
        self.rate
    }
}

/// Formats a speed factor, such as `1/80`.
fn speed(factor: f64) -> String {
    let slower = (1.0 / factor).round();
    match slower > 1.0 && (slower * factor - 1.0).abs() < 0.01 {
        true => format!("1/{slower}"),
        false => factor.to_string(),
    }
}

fn score(window: &Window, took: Duration, stores: &[StoreRow]) -> Score {
    let store_cores = stores.iter().filter_map(|store| store.cpu_own_cores).reduce(|a, b| a + b);
    Score {
        ops_per_s: window.operations() as f64 / took.as_secs_f64(),
        mean_us: window.latency.mean(),
        p99_us: window.latency.value_at_quantile(0.99) as f64,
        store_cores,
    }
}

#[cfg(test)]
mod tests {
    use super::speed;

    #[test]
    fn a_slowed_device_has_a_fraction_of_its_speed() {
        assert_eq!([0.0125, 0.1, 1.0, 0.7, 2.0].map(speed), ["1/80", "1/10", "1", "0.7", "2"]);
    }
}
