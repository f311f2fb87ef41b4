use super::*;

fn store(id: u64, device: &str, leaders: usize, copies: usize, busy: f64) -> StoreLine {
    StoreLine {
        id,
        device: device.into(),
        sync_us: Some(82_400.0),
        is_up: true,
        leaders,
        copies,
        busy: Some(busy),
        ops_per_s: 1234.4,
    }
}

fn scene() -> Scene {
    Scene {
        title: "Steelyard demo: 3 stores".into(),
        chapter: Chapter::Adaptive,
        status: "measuring: 12 s left".into(),
        elapsed: Duration::from_secs(65),
        stores: vec![
            StoreLine { sync_us: Some(400.0), ..store(0, "nvm", 24, 24, 0.31) },
            store(1, "high-end-ssd", 0, 12, 0.004),
            StoreLine { is_up: false, ..store(2, "plain-ssd", 0, 6, 1.0) },
        ],
        waits: vec![("plain-ssd".into(), 1), ("high-end-ssd".into(), 23)],
        regions: 24,
        ops_per_s: Some(4512.0),
        even: Some(Score {
            ops_per_s: 1194.0,
            mean_us: 53_800.0,
            p99_us: 225_200.0,
            store_cores: Some(0.44),
        }),
        adaptive: Some(Score { ops_per_s: 4512.0, mean_us: 14_100.0, p99_us: 60_000.0, store_cores: None }),
        moves: Moves {
            leaders: 20,
            copies: 1,
            told: vec![Told { what: "leader of region 3: a -> b".into(), reason: "it is faster".into() }],
        },
        kill: vec!["kill -9 of store 2.".into()],
        proof: Some(Proof { holds: true, lines: vec!["No acknowledged write is lost.".into()] }),
        hints: Vec::new(),
    }
}

fn texts(scene: &Scene, rows: usize) -> Vec<String> {
    lines(scene, rows).iter().map(Line::text).collect()
}

#[test]
fn a_whole_screen_reads_like_this() {
    let expected = "\
Steelyard demo: 3 stores                                                                        1:05
 start  load  even [adaptive] kill -9  proof
  Policy adaptive: leaders and copies go where the devices can carry them.
  measuring: 12 s left   clients: 4,512 answers/s

store  device            sync  leaders           copies            device busy            ops/s
    0  nvm             400 us  ████████████  24  ████████████  24  ████········  31%      1,234
    1  high-end-ssd   82.4 ms  ············   0  ██████······  12  █···········   0%      1,234
    2  plain-ssd      82.4 ms  DOWN              ███·········   6
  The slowest sync that a write waits for: plain-ssd (1 region), high-end-ssd (23 regions).

same load and devices          ops/s        mean         p99 cores of all stores
policy even                    1,194     53.8 ms    225.2 ms                 0.4
policy adaptive                4,512     14.1 ms     60.0 ms                   -
adaptive / even               3.78 x      0.26 x      0.27 x

adaptive moved 20 leaders and 1 copy, among them, with the reasons:
  leader of region 3: a -> b
      it is faster

kill -9 of store 2.

No acknowledged write is lost.";
    assert_eq!(texts(&scene(), 50).join("\n"), expected);
}

#[test]
fn panels_appear_as_the_story_goes_on() {
    let start = Scene {
        stores: Vec::new(),
        waits: Vec::new(),
        ops_per_s: None,
        even: None,
        moves: Moves::default(),
        kill: Vec::new(),
        proof: None,
        ..scene()
    };
    assert_eq!(lines(&start, 30).len(), 4, "{:?}", texts(&start, 30));
    let even = Scene { adaptive: None, ..scene() };
    assert!(!texts(&even, 30).join("\n").contains("adaptive / even"));
}

/// Returns a scene in which every number and text has its maximum length.
fn extreme() -> Scene {
    let long = "store 18446744073709551615 ".repeat(20);
    let score =
        Score { ops_per_s: f64::MAX, mean_us: f64::INFINITY, p99_us: f64::NAN, store_cores: Some(f64::MAX) };
    let line = StoreLine {
        sync_us: Some(f64::MAX),
        ops_per_s: f64::MAX,
        ..store(u64::MAX, &long, usize::MAX, usize::MAX, f64::INFINITY)
    };
    Scene {
        title: long.clone(),
        status: "\x1b[2J\n".repeat(60),
        elapsed: Duration::MAX,
        stores: vec![
            line.clone(),
            StoreLine { is_up: false, ..line.clone() },
            StoreLine { busy: Some(f64::NAN), sync_us: None, ..line },
        ],
        waits: vec![(long.clone(), usize::MAX)],
        regions: 0,
        ops_per_s: Some(f64::MAX),
        even: Some(score),
        adaptive: Some(score),
        moves: Moves {
            leaders: usize::MAX,
            copies: usize::MAX,
            told: vec![Told { what: long.clone(), reason: "x".repeat(500) }],
        },
        kill: vec![long.clone()],
        proof: Some(Proof { holds: false, lines: vec!["\u{1b}[31mkey\r\n".repeat(50)] }),
        hints: vec![long],
        ..scene()
    }
}

#[test]
fn no_line_is_wider_than_the_screen_whatever_the_values() {
    for scene in [scene(), extreme()] {
        for chapter in Chapter::ALL {
            for line in texts(&Scene { chapter, ..scene.clone() }, 1000) {
                assert!(line.chars().count() <= WIDTH, "{line}");
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
    }
}

#[test]
fn six_stores_and_three_reasons_fit_thirty_rows_until_the_kill() {
    let six = Scene {
        stores: (0..6).map(|id| store(id, "nvm", 4, 12, 0.5)).collect(),
        moves: Moves {
            told: vec![Told { what: "w".repeat(90), reason: "r ".repeat(90) }; 3],
            ..scene().moves
        },
        kill: Vec::new(),
        proof: None,
        ..scene()
    };
    let reasons = texts(&six, 30).iter().filter(|line| line.contains("r r r")).count();
    assert_eq!(reasons, 6, "two lines each");
}

#[test]
fn a_low_terminal_shows_moves_in_turn_then_none_and_is_never_overrun() {
    let told = |reason: &str| Told { what: "leader".into(), reason: reason.into() };
    let moves = Moves { told: vec![told("first reason"), told("second reason")], ..scene().moves };
    let scene = Scene { moves, ..scene() };
    let whole = texts(&scene, 100);
    let filled = whole.iter().filter(|line| !line.is_empty()).count();
    assert_eq!(texts(&scene, whole.len() - 1).len(), filled, "empty lines are left out first");
    let reasons = |elapsed, rows| {
        let scene = Scene { elapsed: Duration::from_secs(elapsed), ..scene.clone() };
        let text = texts(&scene, rows).join("\n");
        assert!(text.contains("No acknowledged write"), "{text}");
        (text.contains("first reason"), text.contains("second reason"))
    };
    assert_eq!(reasons(0, filled), (true, true));
    assert_eq!([reasons(0, filled - 1), reasons(4, filled - 1)], [(true, false), (false, true)]);
    assert_eq!(reasons(0, filled - 3), (false, false));
    for rows in 0..whole.len() {
        assert!(lines(&scene, rows).len() <= rows);
        assert!(lines(&extreme(), rows).len() <= rows);
    }
}

#[test]
fn a_bar_shows_every_share_above_zero_and_no_more_than_all() {
    let filled = |share| bar(share).chars().filter(|c| *c == '█').count();
    assert_eq!([0.0, 0.001, 0.5, 1.0, 7.0, -1.0, f64::NAN].map(filled), [0, 1, 6, 12, 12, 0, 0]);
    assert_eq!(bar(0.3).chars().count(), BAR);
}

#[test]
fn text_wraps_at_blanks() {
    let lines = wrapped(&"word ".repeat(30), "  ");
    let texts: Vec<String> = lines.iter().map(Line::text).collect();
    assert_eq!(texts.len(), 2);
    assert!(texts.iter().all(|text| text.starts_with("  word") && text.chars().count() <= WIDTH));
    assert!(wrapped("", "  ").is_empty());
    assert_eq!(wrapped(&"x".repeat(200), "")[0].text().chars().count(), WIDTH);
}
