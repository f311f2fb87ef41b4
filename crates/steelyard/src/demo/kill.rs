//! Kills the store that leads most under load, measures how long clients wait, and starts it again.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context};
use client::admin::RegionRow;
use client::cluster_client::{Call, Outcome};
use client::table::{count, micros};
use types::slot_of_key;

use super::load::{Load, VISITS};
use super::screen::{self, plural};
use super::story::{Story, LOOK};
use crate::playground::START_PATIENCE;

/// Maximum time until every region has another leader and answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which the cluster is asked for its leaders.
const POLL: Duration = Duration::from_millis(20);
/// Time under load without the store.
const WITHOUT: Duration = Duration::from_secs(4);
/// Maximum time until the restarted store has no lag, and until leaders have returned to it.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(60);
const RETURN_PATIENCE: Duration = Duration::from_secs(15);

pub async fn kill(story: &mut Story, load: &Load) -> anyhow::Result<()> {
    let glance = story.look().await?;
    let victim = glance.stores.iter().max_by_key(|store| store.leaders).context("no stores")?;
    let (id, device, leaders) = (victim.id, victim.device.clone(), victim.leaders);
    let regions = glance.regions.iter().filter(|region| region.first_slot.is_some()).count();
    let questions = questions(story, &glance.regions, id);
    let store = usize::try_from(id)?;
    load.turn();
    let chosen_before = story.campaigns_by_znodes(store).await?;
    let killed = Instant::now();
    story.cluster.stores[store].kill();
    note(story, format!("kill -9 of store {id} ({device}), the leader of {leaders} of {regions} regions."));
    let client = story.client.clone();
    let answers = tokio::spawn(async move {
        let mut tasks = tokio::task::JoinSet::new();
        for question in questions {
            let client = client.clone();
            tasks.spawn(async move { (client.call(&question).await, killed.elapsed()) });
        }
        tasks.join_all().await
    });
    let elected = loop {
        let led = story.led().await?;
        if glance.regions.iter().all(|region| led.contains(&region.id)) {
            break killed.elapsed();
        }
        ensure!(
            killed.elapsed() < PATIENCE,
            "a region has no leader {} s after the kill",
            PATIENCE.as_secs()
        );
        story.status(&format!("{} of {} regions have a leader", led.len(), glance.regions.len()));
        tokio::time::sleep(POLL).await;
    };
    let mut answered = Duration::ZERO;
    for (outcome, after) in answers.await? {
        ensure!(matches!(outcome, Outcome::Done(_)), "a region does not answer after the kill: {outcome:?}");
        answered = answered.max(after);
    }
    let slowest = match answered.is_zero() {
        true => String::new(),
        false => format!(", and had answered clients after {:.1} s", answered.as_secs_f64()),
    };
    note(story, format!("Every region had a leader again after {:.1} s{slowest}.", elected.as_secs_f64()));
    if let (Some(before), Some(after)) = (chosen_before, story.campaigns_by_znodes(store).await?) {
        let count = plural(after.saturating_sub(before) as usize, "campaign", "campaigns");
        note(story, format!("ZooKeeper's znodes chose the candidates: {count} of the other stores' peers."));
    }
    story.watch("without the killed store", WITHOUT, load).await?;
    let (window, took) = load.turn();
    note(
        story,
        format!(
            "In the {:.0} s after the kill {} commands were answered, the slowest in {}; {} got no answer.",
            took.as_secs_f64(),
            count(window.operations() as f64),
            micros(window.longest as f64),
            count(window.unknown as f64)
        ),
    );
    story.tell(&screen::stores(&story.scene));
    start_again(story, load, id).await
}

/// Returns a read for each region that the store leads and that has a record. Its answer shows that
/// the region serves again.
fn questions(story: &Story, regions: &[RegionRow], store: u64) -> Vec<Call> {
    let led = regions.iter().filter(|region| region.leader == Some(store));
    let key_of = |region: &RegionRow| {
        let slots = region.first_slot?..=region.last_slot?;
        let record = story.records.iter().find(|record| slots.contains(&slot_of_key(&record.key)))?;
        Some(Call::new(vec!["HGET".into(), record.key.clone(), VISITS.into()], true))
    };
    led.filter_map(key_of).collect()
}

async fn start_again(story: &mut Story, load: &Load, id: u64) -> anyhow::Result<()> {
    let store = usize::try_from(id)?;
    story.announce(&format!("store {id} starts again"));
    let started = Instant::now();
    story.cluster.stores[store].start()?;
    story.cluster.wait_until_ready(START_PATIENCE).await?;
    let serves = started.elapsed();
    let caught_up = loop {
        let glance = story.look().await?;
        let is_behind =
            |region: &&RegionRow| region.peers.iter().any(|peer| peer.store == id && peer.lag != Some(0));
        let behind = glance.regions.iter().filter(is_behind).count();
        // Under load a follower is always a few entries behind in some region.
        let up = glance.stores.iter().any(|row| row.id == id && row.state == "up");
        if up && behind * 10 <= glance.regions.len() {
            break started.elapsed();
        }
        if started.elapsed() > CATCH_UP_PATIENCE {
            bail!("store {id} is still behind in {behind} regions");
        }
        story.status(&format!("store {id} catches up: behind in {behind} regions"));
        tokio::time::sleep(POLL).await;
    };
    let leaders = |story: &Story| {
        let row = story.scene.stores.iter().find(|row| row.id == id);
        row.map_or(0, |row| row.leaders)
    };
    let waiting = Instant::now();
    while leaders(story) == 0 && waiting.elapsed() < RETURN_PATIENCE {
        story.watch("leaders return to the store that came back", LOOK, load).await?;
    }
    if leaders(story) > 0 {
        story.settle("leaders return to the store that came back", RETURN_PATIENCE, Some(load)).await?;
    }
    let leaders = leaders(story);
    note(
        story,
        format!(
            "Store {id} was started again: it served after {:.1} s, caught up after {:.1} s, and leads {}.",
            serves.as_secs_f64(),
            caught_up.as_secs_f64(),
            plural(leaders, "region", "regions")
        ),
    );
    story.tell(&screen::stores(&story.scene));
    Ok(())
}

/// Appends a sentence to the report about the kill.
fn note(story: &mut Story, text: String) {
    story.say(&text);
    story.scene.kill.push(text);
    story.paint();
}
