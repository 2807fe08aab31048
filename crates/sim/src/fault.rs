//! What goes wrong, and what comes back.

use model::PlaceMode;

use crate::world::{Actor, Event, ROOT, World};

impl World {
    /// Starts a process from its disk.
    pub fn start(&mut self, actor: Actor) {
        let now = self.clock(actor);
        let life = if actor == ROOT {
            self.root.start(now);
            self.root.life
        } else if self.is_zone(actor) {
            self.zone(actor).start(now);
            self.zone(actor).life
        } else {
            if !self.node(actor).exists {
                return;
            }
            self.node(actor).start(now);
            self.node_begin(actor);
            self.node(actor).life
        };
        self.say(|| format!("start {actor}"));
        self.after_ms(0, Event::Tick { actor, life });
    }

    pub fn up(&self, actor: Actor) -> bool {
        match actor {
            ROOT => self.root.core.is_some(),
            zone if zone <= self.zones.len() => self.zones[zone - 1].core.is_some(),
            node => self.nodes[node - 1 - self.zones.len()].child.is_some(),
        }
    }

    fn kill(&mut self, actor: Actor) {
        self.say(|| format!("kill {actor}"));
        match actor {
            ROOT => self.root.kill(),
            zone if self.is_zone(zone) => self.zone(zone).kill(),
            node => self.node(node).kill(),
        }
    }

    /// One fault, chosen by chance.
    pub fn fault(&mut self) {
        let actors = self.actors() as i64;
        let actor = self.between(0, actors - 1) as Actor;
        match self.between(0, 14) {
            13 if actor > self.zones.len() => self.node(actor).copy_take(),
            14 if actor > self.zones.len() && self.up(actor) => self.disk_restore(actor),
            10 if actor <= self.zones.len() => self.clock_jump(actor),
            11..=12 => self.freeze(actor),
            0..=4 if self.up(actor) => {
                self.kill(actor);
                let back = self.between(50, 25_000);
                self.after_ms(back, Event::Restart { actor });
            }
            5..=6 if actor > self.zones.len() && self.up(actor) => {
                self.say(|| format!("host {actor} loses power"));
                self.node(actor).crash();
                let back = self.between(1_000, 40_000);
                self.after_ms(back, Event::Restart { actor });
            }
            7 if actor > self.zones.len() => self.lose_for_good(actor),
            _ if actor != ROOT => self.cut_link(actor),
            _ => {}
        }
    }

    /// Somebody puts the disk of a node back from a copy, or empties it; what runs on the host goes on.
    fn disk_restore(&mut self, actor: Actor) {
        self.say(|| format!("the disk of {actor} is put back from a copy"));
        self.node(actor).copy_restore();
        let back = self.between(50, 5_000);
        self.after_ms(back, Event::Restart { actor });
    }

    fn clock_jump(&mut self, actor: Actor) {
        let by = [-3_600_000, -20_000, -700, 20_000, 3_600_000][self.between(0, 4) as usize];
        self.say(|| format!("the clock of {actor} jumps by {by} ms"));
        *self.clocks.entry(actor).or_default() += by;
    }

    /// The process stands still; the network and the containers go on.
    fn freeze(&mut self, actor: Actor) {
        let until = self.now.plus_ms(self.between(500, 20_000));
        self.say(|| format!("{actor} stands still"));
        self.frozen.insert(actor, until);
    }

    /// At most one node of every zone is lost for good, so that there is room for everything.
    fn lose_for_good(&mut self, actor: Actor) {
        let zone = self.node(actor).zone;
        if self.nodes.iter().any(|node| node.zone == zone && (!node.exists || node.removed)) {
            return;
        }
        self.say(|| format!("host {actor} is lost for good"));
        let node = self.node(actor);
        node.crash();
        node.exists = false;
    }

    /// Cuts one or both directions between an actor and its parent, for a while.
    fn cut_link(&mut self, actor: Actor) {
        let parent = self.parent_of(actor);
        self.say(|| format!("cut {actor} from {parent}"));
        let side = self.between(0, 2);
        if side != 1 {
            self.cut.insert((actor, parent));
        }
        if side != 0 {
            self.cut.insert((parent, actor));
        }
        let back = self.between(100, 30_000);
        self.after_ms(back, Event::Heal { a: actor, b: parent });
    }

    /// An operator cordons, drains or opens a node, or removes one, whatever it holds and whether or not it lives.
    pub fn operate(&mut self) {
        let at = self.between(0, self.nodes.len() as i64 - 1) as usize;
        let node = &self.nodes[at];
        let (actor, zone) = (node.actor, node.zone);
        let alone = !self.nodes.iter().any(|other| other.zone == zone && (!other.exists || other.removed));
        let may_go = !self.nodes[at].exists || alone;
        let remove = may_go && self.chance(0.2);
        let mode = [PlaceMode::Open, PlaceMode::Cordoned, PlaceMode::Draining, PlaceMode::Maintenance]
            [self.between(0, 3) as usize];
        let force = self.chance(0.3);
        let name = format!("node-{actor}");
        let Some(core) = self.zone(zone).core.as_mut() else { return };
        let ordered = match remove {
            true => core.node_remove(&name, true),
            false => core.node_mode(&name, mode, force),
        };
        let Ok((order, writes)) = ordered else { return };
        core.ordered(order);
        self.say(|| if remove { format!("remove {actor}") } else { format!("{mode:?} {actor}") });
        self.node(actor).removed |= remove;
        self.zone_write(zone, writes, Vec::new());
        self.zone_step(zone);
    }

    /// Nodes are opened again, so that there is room for everything.
    fn open_all(&mut self) {
        for at in 0..self.nodes.len() {
            let (name, zone) = (format!("node-{}", self.nodes[at].actor), self.nodes[at].zone);
            let Some(core) = self.zone(zone).core.as_mut() else { continue };
            if let Ok((order, writes)) = core.node_mode(&name, PlaceMode::Open, false) {
                core.ordered(order);
                self.zone_write(zone, writes, Vec::new());
            }
        }
    }

    /// Everything that can come back does.
    pub fn calm(&mut self) {
        self.cut.clear();
        self.frozen.clear();
        self.weather = crate::world::Weather::FAIR;
        for actor in 0..self.actors() {
            if !self.up(actor) {
                self.start(actor);
            }
        }
        self.open_all();
    }
}
