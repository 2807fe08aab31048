//! Tasks, and what each of them waits for.

use std::collections::HashMap;
use std::fmt;

use model::{Error, Result};
use serde::{Serialize, Serializer};

use super::PlanNode;
use crate::entity::ActionKind;

/// What a task does. The first four are done to a machine, the others to a service on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskName {
    Create,
    Confirm,
    Bootstrap,
    Delete,
    Service(ActionKind),
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create => f.write_str("CREATE"),
            Self::Confirm => f.write_str("CONFIRM"),
            Self::Bootstrap => f.write_str("BOOTSTRAP"),
            Self::Delete => f.write_str("DELETE"),
            Self::Service(action) => f.write_str(&action.to_string().to_uppercase()),
        }
    }
}

impl Serialize for TaskName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Task {
    pub name: TaskName,
    /// Place of its node in the list.
    pub node: usize,
    /// Empty for what is done to the machine.
    pub service: String,
}

/// A graph of tasks. A task waits for single tasks and for *gates*: all tasks of one action and one
/// service. Without gates a cluster of 10,000 machines would have a hundred million edges.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    tasks: Vec<Task>,
    places: HashMap<Task, usize>,
    needs: Vec<Vec<usize>>,
    gates: Vec<Vec<usize>>,
    waits: Vec<Vec<usize>>,
}

impl Graph {
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn task(&self, at: usize) -> &Task {
        &self.tasks[at]
    }

    pub fn find(&self, task: &Task) -> Option<usize> {
        self.places.get(task).copied()
    }

    /// The single tasks that a task waits for.
    pub fn needs(&self, at: usize) -> &[usize] {
        &self.needs[at]
    }

    /// The gates that a task waits for.
    pub fn waits(&self, at: usize) -> &[usize] {
        &self.waits[at]
    }

    /// The tasks of every gate.
    pub fn gates(&self) -> &[Vec<usize>] {
        &self.gates
    }

    /// How many edges there are when every gate is written out.
    pub fn edge_count(&self) -> usize {
        let of = |at: usize| {
            self.needs[at].len() + self.waits[at].iter().map(|gate| self.gates[*gate].len()).sum::<usize>()
        };
        (0..self.tasks.len()).map(of).sum()
    }

    /// Everything that a task waits for, each once, in order.
    pub fn all_needs(&self, at: usize) -> Vec<usize> {
        let gated = self.waits[at].iter().flat_map(|gate| &self.gates[*gate]);
        let mut all: Vec<usize> = self.needs[at].iter().chain(gated).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The place of a task, which is added if it is new.
    pub(super) fn add(&mut self, task: Task) -> usize {
        if let Some(at) = self.places.get(&task) {
            return *at;
        }
        let at = self.tasks.len();
        self.places.insert(task.clone(), at);
        self.tasks.push(task);
        self.needs.push(Vec::new());
        self.waits.push(Vec::new());
        at
    }

    pub(super) fn need(&mut self, task: usize, before: usize) {
        if !self.needs[task].contains(&before) {
            self.needs[task].push(before);
        }
    }

    pub(super) fn gate(&mut self, tasks: Vec<usize>) -> usize {
        self.gates.push(tasks);
        self.gates.len() - 1
    }

    pub(super) fn wait(&mut self, task: usize, gate: usize) {
        if !self.waits[task].contains(&gate) {
            self.waits[task].push(gate);
        }
    }

    /// Tasks by the longest way to them: each level can begin when the one before is done.
    pub fn levels(&self) -> Result<Vec<Vec<usize>>> {
        // Gates are steps of no length between tasks.
        let tasks = self.tasks.len();
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); tasks + self.gates.len()];
        let mut missing = vec![0usize; tasks + self.gates.len()];
        for (at, (needs, waits)) in self.needs.iter().zip(&self.waits).enumerate() {
            needs.iter().for_each(|before| after[*before].push(at));
            waits.iter().for_each(|gate| after[tasks + gate].push(at));
            missing[at] = needs.len() + waits.len();
        }
        for (gate, members) in self.gates.iter().enumerate() {
            members.iter().for_each(|member| after[*member].push(tasks + gate));
            missing[tasks + gate] = members.len();
        }
        let mut depth = vec![0usize; missing.len()];
        let mut open: Vec<usize> = (0..missing.len()).filter(|at| missing[*at] == 0).collect();
        let mut levels: Vec<Vec<usize>> = Vec::new();
        let mut done = 0;
        while let Some(at) = open.pop() {
            done += 1;
            let length = usize::from(at < tasks);
            if at < tasks {
                if levels.len() <= depth[at] {
                    levels.resize(depth[at] + 1, Vec::new());
                }
                levels[depth[at]].push(at);
            }
            for next in &after[at] {
                depth[*next] = depth[*next].max(depth[at] + length);
                missing[*next] -= 1;
                if missing[*next] == 0 {
                    open.push(*next);
                }
            }
        }
        if done < missing.len() {
            return Err(Error::invalid("the tasks wait for each other in a circle"));
        }
        Ok(levels)
    }

    /// The levels as Coopr shows them: parted so that a node has at most one task in each stage.
    pub fn stages(&self, nodes: &[PlanNode]) -> Result<Vec<Vec<usize>>> {
        let levels = self.sorted_levels(nodes)?;
        Ok(levels.into_iter().flat_map(|level| split(&level, |task| self.tasks[*task].node)).collect())
    }

    /// The levels, each in the order of node number, service and action.
    pub fn sorted_levels(&self, nodes: &[PlanNode]) -> Result<Vec<Vec<usize>>> {
        let mut levels = self.levels()?;
        for level in &mut levels {
            level.sort_by_cached_key(|at| {
                let task = &self.tasks[*at];
                (nodes[task.node].nodenum, task.service.clone(), task.name)
            });
        }
        Ok(levels)
    }
}

/// Parts a level so that every part has a node at most once, the first part as full as can be.
fn split<T: Copy>(level: &[T], node: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut next: HashMap<usize, usize> = HashMap::new();
    for task in level {
        let at = next.entry(node(task)).or_default();
        if parts.len() <= *at {
            parts.push(Vec::new());
        }
        parts[*at].push(*task);
        *at += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_level_is_parted_by_node() {
        let level = [("install", 1), ("configure", 1), ("install", 3), ("start", 1)];
        let parts = split(&level, |task| task.1);
        assert_eq!(parts, [vec![level[0], level[2]], vec![level[1]], vec![level[3]]]);
    }

    #[test]
    fn a_circle_is_no_plan() {
        let mut graph = Graph::default();
        let task = |service: &str| Task { name: TaskName::Create, node: 0, service: service.to_owned() };
        let (one, other) = (graph.add(task("a")), graph.add(task("b")));
        graph.need(one, other);
        assert_eq!(graph.levels().unwrap(), [[other], [one]]);
        let gate = graph.gate(vec![one]);
        graph.wait(other, gate);
        assert!(graph.levels().unwrap_err().message.contains("circle"));
    }
}
