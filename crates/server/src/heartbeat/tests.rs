use types::SlotRange;

use super::*;
use crate::fixture::Fixture;
use node::Leadership;

fn region() -> RegionShared {
    RegionShared::new(types::RegionDescriptor::founded(1, Some(SlotRange::ALL), &[0]), true)
}

#[test]
fn a_steady_rate_is_reached_and_decays_to_nothing_after_the_load_ends() {
    let (region, mut now) = (region(), Instant::now());
    let mut rates = Rates::of(&region);
    let mut pass = |rates: &mut Rates, writes: u64| {
        region.writes.fetch_add(writes, Ordering::Relaxed);
        region.write_bytes.fetch_add(writes * 100, Ordering::Relaxed);
        region.misses.fetch_add(writes / 2, Ordering::Relaxed);
        now += Duration::from_millis(200);
        rates.advance(&region, 0.2, now);
        rates.rest()
    };
    for _ in 0..150 {
        assert!(!pass(&mut rates, 200));
    }
    assert!((rates.writes.per_s - 1000.0).abs() < 10.0, "{}", rates.writes.per_s);
    assert!((rates.write_bytes.per_s - 100_000.0).abs() < 1000.0, "{}", rates.write_bytes.per_s);
    assert!((rates.misses.per_s - 500.0).abs() < 5.0, "{}", rates.misses.per_s);
    assert_eq!(rates.reads.per_s, 0.0);
    let heat = rates.heat;
    assert!(heat > 30.0 && heat < 100.0, "{heat}: heat decays slowly");
    let rounds = (0..1000).take_while(|_| !pass(&mut rates, 0)).count();
    assert!((100..500).contains(&rounds), "{rounds}");
    assert_eq!((rates.writes.per_s, rates.write_bytes.per_s, rates.misses.per_s), (0.0, 0.0, 0.0));
    assert!(rates.heat > heat / 2.0, "{}", rates.heat);
}

#[test]
fn heat_decays_while_a_region_is_not_looked_at() {
    let (region, now) = (region(), Instant::now());
    let mut rates = Rates::of(&region);
    rates.advance(&region, 0.2, now);
    rates.heat = 100.0;
    rates.advance(&region, 0.2, now + Duration::from_secs(600));
    assert!((rates.heat - 100.0 / std::f64::consts::E).abs() < 1.0, "{}", rates.heat);
}

#[test]
fn a_region_at_rest_is_in_no_heartbeat_but_the_full_ones() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let one = store.regions.get(1).unwrap();
    let lead = |leader: Option<StoreId>, term| {
        store.regions.lead(1, Leadership { term, leader });
        assert_eq!(one.leader(), leader);
    };
    let mut reporter = Reporter::new();
    assert!(reporter.report(store).is_full());
    assert!(reporter.report(store).leads.reports.is_empty());
    lead(Some(store.id), 3);
    // The worker has not published the region's status yet.
    assert!(reporter.report(store).leads.reports.is_empty());
    store.regions.publish([1].into_iter(), |_| Some(fixture.status(&one)));
    let told =
        |heartbeat: &StoreHeartbeat| heartbeat.leads.reports.iter().map(|l| l.region()).collect::<Vec<_>>();
    let first = reporter.report(store);
    assert_eq!((first.is_full(), told(&first)), (false, vec![1]));
    // A full heartbeat reports the region, too. From then on nothing changes, so nothing is
    // reported or looked at.
    reporter.full_at = None;
    assert_eq!(told(&reporter.report(store)), [1]);
    for _ in 0..3 {
        assert!(told(&reporter.report(store)).is_empty());
        assert!(reporter.busy.is_empty());
    }
    // The same status again is no change.
    store.regions.publish([1].into_iter(), |_| Some(fixture.status(&one)));
    assert!(store.regions.take_touched().is_empty());
    store.regions.touch(&one);
    one.writes.fetch_add(1000, Ordering::Relaxed);
    assert_eq!(told(&reporter.report(store)), [1]);
    assert!(reporter.busy.contains(&1));
    lead(None, 4);
    let last = reporter.report(store);
    assert_eq!(last.leads.gone, [1]);
    assert!(reporter.busy.is_empty());
}

#[test]
fn what_a_follower_answers_heats_its_region_and_is_told_in_full_reports() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let one = store.regions.get(1).unwrap();
    let lead = |leader: StoreId, term| {
        store.regions.lead(1, Leadership { term, leader: Some(leader) });
        assert_eq!(one.leader(), Some(leader));
        store.regions.touch(&one);
    };
    let mut reporter = Reporter::new();
    let mut report = |full: bool| {
        if full {
            reporter.full_at = None;
        }
        reporter.report(store)
    };
    lead(store.id + 1, 3);
    assert!(report(true).followed.is_empty());
    one.reads.fetch_add(1000, Ordering::Relaxed);
    store.regions.touch(&one);
    assert!(report(false).followed.is_empty());
    let followed = |heartbeat: StoreHeartbeat| match heartbeat.followed[..] {
        [] => 0.0,
        [(1, heat)] => heat,
        ref other => panic!("{other:?}"),
    };
    let heat = followed(report(true));
    // The average of 1000 reads over ten minutes.
    assert!((1.0..1000.0 / 600.0 + 0.01).contains(&heat), "{heat}");
    // The store leads, but its worker has not published a status yet. The heat is still reported as
    // a follower's heat.
    lead(store.id, 4);
    assert!(followed(report(true)) > heat * 0.9);
    store.regions.publish([1].into_iter(), |_| Some(fixture.status(&one)));
    let leads = report(true);
    assert!(leads.leads.reports[0].heat > heat * 0.9, "{leads:?}");
    assert_eq!(followed(leads), 0.0);
    // Other stores keep the reported heat, so another term of the same leader starts at zero, too.
    lead(store.id, 5);
    store.regions.publish([1].into_iter(), |_| Some(fixture.status(&one)));
    let again = report(true);
    assert_eq!((again.leads.reports[0].term, again.leads.reports[0].heat), (5, 0.0));
    lead(store.id + 1, 6);
    assert_eq!(followed(report(true)), 0.0);
}

#[test]
fn reads_between_a_report_and_a_change_of_leader_are_counted() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let one = store.regions.get(1).unwrap();
    let lead = |leader: StoreId, term| {
        store.regions.lead(1, Leadership { term, leader: Some(leader) });
        store.regions.touch(&one);
    };
    let mut reporter = Reporter::new();
    let mut full_report = || {
        reporter.full_at = None;
        reporter.report(store)
    };
    lead(store.id, 3);
    store.regions.publish([1].into_iter(), |_| Some(fixture.status(&one)));
    assert_eq!(full_report().leads.reports[0].heat, 0.0);
    // The store answers 600 reads, as the leader and then as a follower, before its next report.
    one.reads.fetch_add(200, Ordering::Relaxed);
    lead(store.id + 1, 4);
    one.reads.fetch_add(400, Ordering::Relaxed);
    let heartbeat = full_report();
    let [(1, heat)] = heartbeat.followed[..] else { panic!("{heartbeat:?}") };
    assert!((0.99..1.01).contains(&heat), "{heat}");
}

/// The load becomes known after some seconds, if the kernel reports it.
#[test]
fn heartbeats_and_metrics_tell_how_busy_the_cpu_is() {
    let fixture = Fixture::new();
    let mut reporter = Reporter::new();
    assert_eq!(reporter.report(&fixture.store).cpu, None);
    assert!(fixture.store.metrics.text().contains("steelyard_cpu_cores 0"));
    let begun = Instant::now();
    let cpu = loop {
        if let Some(cpu) = reporter.report(&fixture.store).cpu {
            break cpu;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the load is not reported");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(cpu.cores > 0.0 && (0.0..=1.0).contains(&cpu.busy) && cpu.own >= 0.0, "{cpu:?}");
    let text = fixture.store.metrics.text();
    let told = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok())
    };
    let names = ["steelyard_cpu_cores", "steelyard_cpu_busy_ratio", "steelyard_cpu_own_cores"];
    assert_eq!(names.map(told), [Some(cpu.cores), Some(cpu.busy), Some(cpu.own)]);
}

/// A store whose worker never answers and whose blocking threads are all busy, as on a hanging
/// device.
#[test]
fn heartbeats_do_not_wait_for_engines_or_proposals() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let fixture = Fixture::new();
    let store = fixture.store.clone();
    fixture.start_links(runtime.handle());
    let led = Leadership { term: 1, leader: Some(store.id) };
    store.regions.lead(types::META_REGION, led);
    let (release, hang) = std::sync::mpsc::channel::<()>();
    let hanging = runtime.spawn_blocking(move || hang.recv());
    let heartbeats = runtime.spawn(run(store.clone()));
    let begun = Instant::now();
    let heard = || store.cluster.heard(store.id).map_or(0, |(_, heartbeat)| heartbeat.seq);
    while heard() < 5 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} heartbeats", heard());
        std::thread::sleep(Duration::from_millis(5));
    }
    let bootstraps =
        fixture.told().filter(|told| matches!(told, ToWorker::Shard(node::Input::Submit(_)))).count();
    assert_eq!(bootstraps, 1, "only one bootstrap runs at a time");
    heartbeats.abort();
    drop(release);
    assert!(runtime.block_on(hanging).expect("it ends").is_err());
}
