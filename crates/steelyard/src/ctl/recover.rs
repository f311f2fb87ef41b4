//! `steelyard ctl recover`: plans the recovery of regions whose majority is lost for good, and
//! orders it.

use std::time::Duration;

use anyhow::anyhow;
use client::admin::{
    AdminClient, RecoverRequest, RecoverRow, RecoveriesQuery, RecoveryPlan, RecoveryRow, RegionPlan,
};
use client::table::{count, Align, Table};

use super::{ask, unix_ms};

/// Time limit of a request. The store waits for leaders to step down, for promises and for
/// elections, and gives up earlier than this.
pub const TIMEOUT: Duration = Duration::from_secs(180);

#[derive(clap::Args)]
pub struct Recover {
    /// Stores that are lost for good, with their data: they must never be started again
    #[arg(long, value_name = "STORE", value_delimiter = ',', required_unless_present = "list")]
    lost: Vec<u64>,
    /// Recover only these regions [default: all that lost their majority with the lost stores]
    #[arg(long, value_name = "REGION", value_delimiter = ',')]
    region: Vec<u64>,
    /// Carry out the plan; without it the plan is only shown
    #[arg(long)]
    yes: bool,
    /// List past recoveries
    #[arg(long, conflicts_with_all = ["lost", "region", "yes"])]
    list: bool,
}

/// Shows the plan, or carries it out. Fails unless every region that lost its majority is recovered
/// or can be.
pub fn run(
    client: &AdminClient,
    order: Recover,
    as_json: bool,
    say: impl Fn(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if order.list {
        let rows = ask(client, &RecoveriesQuery {})?;
        return match as_json {
            true => say(serde_json::to_string_pretty(&rows)? + "\n"),
            false => say(list_text(&rows, unix_ms())),
        };
    }
    let Recover { lost, region, yes, .. } = order;
    let row = ask(client, &RecoverRequest { lost, regions: region, act: yes })?;
    match as_json {
        true => say(serde_json::to_string_pretty(&row)? + "\n")?,
        false => say(if yes { outcome_text(&row) } else { plan_text(&row.plan) })?,
    }
    let refused = row.plan.refused.iter().map(|refused| (refused.region, &refused.reason));
    let failed = row.failed.iter().map(|failed| (failed.region, &failed.reason));
    let not_done: Vec<String> =
        refused.chain(failed).map(|(region, reason)| format!("region {region}: {reason}")).collect();
    match not_done.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("not recovered: {}", not_done.join("; "))),
    }
}

fn plan_text(plan: &RecoveryPlan) -> String {
    if plan.regions.is_empty() {
        return "no region has lost its majority with these stores. A store that does not answer counts as lost only if \
                you name it\n"
            .into();
    }
    let mut text = plan_table(&plan.regions).to_string() + "\n";
    for region in &plan.regions {
        text += &region_text(region);
    }
    text + "\nThis is a plan, and nothing is changed. The lost stores must never come back: destroy their data first. \
            With --yes the regions continue from these logs.\n"
}

fn plan_table(regions: &[RegionPlan]) -> Table {
    let columns = [
        ("region", Align::Right),
        ("slots", Align::Left),
        ("store", Align::Right),
        ("last term", Align::Right),
        ("last entry", Align::Right),
        ("committed", Align::Right),
        ("applied", Align::Right),
        ("what becomes of it", Align::Left),
    ];
    let mut table = Table::new(columns);
    for region in regions {
        for survivor in &region.survivors {
            let fate = match &survivor.unfit {
                _ if survivor.store == region.keeper => "the region continues from its log".to_owned(),
                unfit => {
                    let why = unfit.as_ref().map_or(String::new(), |unfit| format!(" ({unfit})"));
                    let dropped = match survivor.dropped {
                        0 => String::new(),
                        dropped => format!(", {} of its entries are dropped", count(dropped as f64)),
                    };
                    format!("follows{dropped}{why}")
                }
            };
            table.row([
                region.region.to_string(),
                region.slots.map_or("meta".into(), |(first, last)| format!("{first}-{last}")),
                survivor.store.to_string(),
                survivor.last_term.to_string(),
                survivor.last.to_string(),
                survivor.commit.to_string(),
                survivor.applied.to_string(),
                fate,
            ]);
        }
    }
    table
}

fn region_text(region: &RegionPlan) -> String {
    let RegionPlan { region: id, keeper, committed, last, told, .. } = region;
    let unproven = match last.saturating_sub(*committed) {
        0 => format!("all of its {last} entries are known to be committed"),
        entries => format!(
            "its last {entries} entries (from {}) may never have been acknowledged, and are treated as committed",
            committed + 1
        ),
    };
    let gone = match (told, region.certainly_lost()) {
        (Some(told), 0) => format!(
            "Its last leader reported {told} as committed: nothing that is known to be committed is lost. How much was \
             committed after that is not known"
        ),
        (Some(told), entries) => format!(
            "Its last leader reported {told} as committed: at least the {entries} entries from {} on are lost. How \
             many more are lost is not known",
            last + 1
        ),
        (None, _) => "How many entries the lost stores had beyond it is not known".into(),
    };
    format!("region {id} continues from the log of store {keeper}; {unproven}. {gone}.\n")
}

fn outcome_text(row: &RecoverRow) -> String {
    let mut text = String::new();
    for region in &row.plan.regions {
        text += &region_text(region);
    }
    let regions = |regions: &[u64]| regions.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    text += &format!(
        "order {}: recovered region {}\n",
        row.order.map_or("?".into(), |order| order.to_string()),
        regions(&row.recovered)
    );
    for struck in &row.struck {
        text += &match &struck.not_struck {
            None => format!("store {} is no member any more\n", struck.store),
            Some(reason) => format!(
                "store {0} is still on the list of stores: {reason}. Its peers are replaced; then ctl store remove {0}\n",
                struck.store
            ),
        };
    }
    text
}

fn list_text(rows: &[RecoveryRow], now_ms: u64) -> String {
    if rows.is_empty() {
        return "no region was ever recovered\n".into();
    }
    let columns = [
        ("region", Align::Right),
        ("order", Align::Right),
        ("when", Align::Left),
        ("log of store", Align::Right),
        ("lost stores", Align::Left),
        ("known to be committed", Align::Right),
        ("kept", Align::Right),
    ];
    let mut table = Table::new(columns);
    for row in rows {
        let ago = Duration::from_millis(now_ms.saturating_sub(row.at_unix_ms));
        table.row([
            row.region.to_string(),
            row.order.to_string(),
            format!("{} ago", client::table::duration(ago)),
            row.keeper.to_string(),
            row.lost.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            row.committed.to_string(),
            row.last.to_string(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use client::admin::Survivor;

    use super::*;

    #[test]
    fn the_plan_says_whose_log_counts_and_what_may_be_lost() {
        let survivor = |store, last, dropped| Survivor {
            store,
            last_term: 3,
            last,
            commit: 90,
            applied: 90,
            unfit: None,
            dropped,
        };
        let region = RegionPlan {
            region: 7,
            slots: Some((0, 99)),
            keeper: 1,
            keeper_peer: 2,
            term: 1027,
            lost: vec![2, 3, 4],
            survivors: vec![survivor(0, 98, 3), survivor(1, 97, 0)],
            committed: 90,
            last: 97,
            told: Some(99),
        };
        let text = plan_text(&RecoveryPlan { regions: vec![region], refused: Vec::new() });
        assert!(text.contains("follows, 3 of its entries are dropped"), "{text}");
        assert!(
            text.contains("continues from the log of store 1; its last 7 entries (from 91) may never"),
            "{text}"
        );
        assert!(text.contains("at least the 2 entries from 98 on are lost"), "{text}");
        assert!(text.contains("nothing is changed"), "{text}");
    }
}
