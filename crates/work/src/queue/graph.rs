//! One job: tasks, what each of them needs, and how far they are.

use serde::{Deserialize, Serialize};

/// The tasks of a job by their numbers 0, 1, 2, …
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub tasks: Vec<Step>,
}

/// What the graph knows of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The tasks that must be done before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<u32>,
    /// Nobody does it: it is done when what it needs is. A thousand tasks that wait for a thousand others meet in one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gate: bool,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// For what it needs.
    #[default]
    Waiting,
    Ready,
    Held,
    Done,
    /// Given up.
    Failed,
    /// Not wanted any more.
    Dropped,
}

impl Stage {
    pub fn is_over(self) -> bool {
        matches!(self, Stage::Done | Stage::Failed | Stage::Dropped)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("task {task} needs task {needs}, which does not exist")]
    Unknown { task: u32, needs: u32 },
    #[error("the tasks {0:?} wait for each other")]
    Cycle(Vec<u32>),
    #[error("a job has at most {TASKS_MAX} tasks")]
    TooMany,
}

/// Tasks of one job.
pub const TASKS_MAX: usize = 2_000_000;
/// Tasks that an error about a cycle names.
const NAMED_MAX: usize = 8;

/// How many tasks are how far. Gates do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub waiting: u32,
    pub ready: u32,
    pub held: u32,
    pub done: u32,
    pub failed: u32,
    pub dropped: u32,
}

impl Progress {
    pub fn total(&self) -> u32 {
        self.waiting + self.ready + self.held + self.done + self.failed + self.dropped
    }

    /// Nothing is going on and nothing will.
    pub fn is_over(&self) -> bool {
        self.waiting + self.ready + self.held == 0
    }

    fn count(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Waiting => &mut self.waiting,
            Stage::Ready => &mut self.ready,
            Stage::Held => &mut self.held,
            Stage::Done => &mut self.done,
            Stage::Failed => &mut self.failed,
            Stage::Dropped => &mut self.dropped,
        }
    }
}

#[derive(Debug, Clone)]
struct Vertex {
    stage: Stage,
    is_gate: bool,
    /// How often it was taken.
    attempts: u32,
    /// Tasks before it that are not done.
    missing: u32,
    next: Vec<u32>,
}

#[derive(Debug, Clone, Default)]
pub struct Graph {
    vertices: Vec<Vertex>,
    progress: Progress,
}

impl Graph {
    pub fn new(shape: &Shape) -> Result<Self, ShapeError> {
        let mut graph = Self::default();
        graph.extend(shape.tasks.iter().cloned())?;
        Ok(graph)
    }

    /// Adds tasks. On an error nothing is added. Those without needs are ready at once; see [`Graph::ready`].
    pub fn extend(&mut self, steps: impl IntoIterator<Item = Step>) -> Result<(), ShapeError> {
        let first = self.vertices.len();
        let steps: Vec<Step> = steps.into_iter().collect();
        let total = first + steps.len();
        if total > TASKS_MAX {
            return Err(ShapeError::TooMany);
        }
        for (task, step) in (first..).zip(&steps) {
            if let Some(needs) = step.needs.iter().find(|needs| **needs as usize >= total) {
                return Err(ShapeError::Unknown { task: task as u32, needs: *needs });
            }
        }
        acyclic(first, &steps)?;
        for step in &steps {
            self.vertices.push(Vertex {
                stage: Stage::Waiting,
                is_gate: step.is_gate,
                attempts: 0,
                missing: 0,
                next: Vec::new(),
            });
            self.progress.waiting += u32::from(!step.is_gate);
        }
        for (task, step) in (first..).zip(steps) {
            let mut needs = step.needs;
            needs.sort_unstable();
            needs.dedup();
            for need in needs {
                let before = &mut self.vertices[need as usize];
                before.next.push(task as u32);
                self.vertices[task].missing += u32::from(self.vertices[need as usize].stage != Stage::Done);
            }
        }
        let mut free: Vec<u32> =
            (first..total).filter(|task| self.vertices[*task].missing == 0).map(|task| task as u32).collect();
        self.settle(&mut free);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    pub fn stage(&self, task: u32) -> Option<Stage> {
        self.vertices.get(task as usize).map(|vertex| vertex.stage)
    }

    pub fn attempts(&self, task: u32) -> u32 {
        self.vertices.get(task as usize).map_or(0, |vertex| vertex.attempts)
    }

    /// All that are ready, in the order of their numbers.
    pub fn ready(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.vertices).filter(|(_, vertex)| vertex.stage == Stage::Ready).map(|(task, _)| task)
    }

    /// Puts a task where it was when it was last kept. Only on a graph that nobody has taken from.
    /// What was held then is ready again. Returns what became ready by it.
    pub fn restore(&mut self, task: u32, stage: Stage, attempts: u32) -> Vec<u32> {
        let Some(vertex) = self.vertices.get_mut(task as usize) else { return Vec::new() };
        vertex.attempts = attempts;
        match stage {
            Stage::Done => self.done(task),
            Stage::Failed | Stage::Dropped => {
                self.set(task, stage);
                Vec::new()
            }
            Stage::Waiting | Stage::Ready | Stage::Held => Vec::new(),
        }
    }

    /// Somebody begins it. The number of this attempt, from 1; `None` if it is not ready.
    pub fn hold(&mut self, task: u32) -> Option<u32> {
        if self.stage(task)? != Stage::Ready {
            return None;
        }
        self.set(task, Stage::Held);
        let vertex = &mut self.vertices[task as usize];
        vertex.attempts += 1;
        Some(vertex.attempts)
    }

    /// It is to be begun again.
    pub fn release(&mut self, task: u32) {
        if self.stage(task) == Some(Stage::Held) {
            self.set(task, Stage::Ready);
        }
    }

    /// It is given up.
    pub fn fail(&mut self, task: u32) {
        if self.stage(task).is_some_and(|stage| !stage.is_over()) {
            self.set(task, Stage::Failed);
        }
    }

    /// It is done. Returns what became ready by it.
    pub fn done(&mut self, task: u32) -> Vec<u32> {
        if self.stage(task).is_none_or(Stage::is_over) {
            return Vec::new();
        }
        self.set(task, Stage::Done);
        let mut free = self.free_by(task);
        self.settle(&mut free);
        free
    }

    /// Nothing that has not begun is begun any more.
    pub fn drop_rest(&mut self) {
        for task in 0..self.vertices.len() as u32 {
            if matches!(self.vertices[task as usize].stage, Stage::Waiting | Stage::Ready) {
                self.set(task, Stage::Dropped);
            }
        }
    }

    fn set(&mut self, task: u32, stage: Stage) {
        let vertex = &mut self.vertices[task as usize];
        let before = std::mem::replace(&mut vertex.stage, stage);
        if !vertex.is_gate {
            *self.progress.count(before) -= 1;
            *self.progress.count(stage) += 1;
        }
    }

    /// Takes a task that is done from the count of those that wait for it.
    fn free_by(&mut self, task: u32) -> Vec<u32> {
        let next = std::mem::take(&mut self.vertices[task as usize].next);
        let mut free = Vec::new();
        for after in &next {
            let vertex = &mut self.vertices[*after as usize];
            vertex.missing -= 1;
            if vertex.missing == 0 && vertex.stage == Stage::Waiting {
                free.push(*after);
            }
        }
        self.vertices[task as usize].next = next;
        free
    }

    /// Makes tasks ready whose needs are done, and passes through gates. Leaves in `free` what is ready.
    fn settle(&mut self, free: &mut Vec<u32>) {
        let mut at = 0;
        while at < free.len() {
            let task = free[at];
            if self.vertices[task as usize].is_gate {
                free.swap_remove(at);
                self.set(task, Stage::Done);
                free.extend(self.free_by(task));
            } else {
                self.set(task, Stage::Ready);
                at += 1;
            }
        }
        free.sort_unstable();
    }
}

/// Those before `first` are known to be sound, and none of them needs a new one.
fn acyclic(first: usize, steps: &[Step]) -> Result<(), ShapeError> {
    let inner = |need: &u32| (*need as usize).checked_sub(first);
    let mut missing: Vec<u32> = Vec::with_capacity(steps.len());
    let mut next: Vec<Vec<u32>> = vec![Vec::new(); steps.len()];
    for (task, step) in steps.iter().enumerate() {
        let needs: Vec<usize> = step.needs.iter().filter_map(inner).collect();
        missing.push(needs.len() as u32);
        for need in needs {
            next[need].push(task as u32);
        }
    }
    let mut free: Vec<usize> = (0..steps.len()).filter(|task| missing[*task] == 0).collect();
    let mut seen = 0;
    while let Some(task) = free.pop() {
        seen += 1;
        for after in &next[task] {
            missing[*after as usize] -= 1;
            if missing[*after as usize] == 0 {
                free.push(*after as usize);
            }
        }
    }
    if seen == steps.len() {
        return Ok(());
    }
    // Walking back from any task that is left ends in a cycle.
    let mut walk = Vec::new();
    let mut at = missing.iter().position(|missing| *missing > 0).unwrap_or(0);
    while !walk.contains(&at) {
        walk.push(at);
        let before = steps[at].needs.iter().filter_map(inner).find(|need| missing[*need] > 0);
        let Some(before) = before else { break };
        at = before;
    }
    let start = walk.iter().position(|task| *task == at).unwrap_or(0);
    let cycle = walk[start..].iter().rev().take(NAMED_MAX).map(|task| (first + task) as u32).collect();
    Err(ShapeError::Cycle(cycle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(needs: &[u32]) -> Step {
        Step { needs: needs.to_vec(), is_gate: false }
    }

    fn gate(needs: &[u32]) -> Step {
        Step { needs: needs.to_vec(), is_gate: true }
    }

    fn graph(tasks: Vec<Step>) -> Graph {
        Graph::new(&Shape { tasks }).expect("the shape is sound")
    }

    fn ready(graph: &Graph) -> Vec<u32> {
        graph.ready().collect()
    }

    #[test]
    fn a_task_is_ready_as_soon_as_what_it_needs_is_done() {
        let mut graph = graph(vec![step(&[]), step(&[]), step(&[0]), step(&[0, 1])]);
        assert_eq!(ready(&graph), [0, 1]);
        assert_eq!(graph.hold(0), Some(1));
        assert_eq!(graph.hold(0), None, "held already");
        assert_eq!(graph.hold(3), None, "not ready");
        assert_eq!(graph.done(0), [2]);
        assert_eq!(graph.done(0), [0; 0], "done once");
        assert_eq!(graph.done(1), [3]);
        assert_eq!(graph.progress(), Progress { ready: 2, done: 2, ..Progress::default() });
    }

    #[test]
    fn gates_are_passed_without_anyone() {
        let mut graph = graph(vec![step(&[]), step(&[]), gate(&[0, 1]), gate(&[2]), step(&[3]), step(&[3])]);
        assert_eq!(graph.progress().total(), 4);
        assert_eq!(graph.done(0), [0; 0]);
        assert_eq!(graph.done(1), [4, 5]);
        let empty = super::Graph::new(&Shape { tasks: vec![gate(&[])] }).expect("sound");
        assert!(empty.progress().is_over());
    }

    #[test]
    fn what_is_named_twice_is_needed_once() {
        let mut graph = graph(vec![step(&[]), step(&[0, 0])]);
        assert_eq!(graph.done(0), [1]);
    }

    #[test]
    fn cycles_and_unknown_tasks_are_refused_and_nothing_is_added() {
        let tasks = vec![step(&[]), step(&[0, 3]), step(&[1]), step(&[2])];
        let Err(ShapeError::Cycle(cycle)) = Graph::new(&Shape { tasks }) else { panic!("a cycle") };
        assert_eq!(cycle.len(), 3);
        assert!([1, 2, 3].iter().all(|task| cycle.contains(task)));
        let itself = Graph::new(&Shape { tasks: vec![step(&[0])] });
        assert_eq!(itself.err(), Some(ShapeError::Cycle(vec![0])));
        let mut graph = graph(vec![step(&[])]);
        assert_eq!(graph.extend([step(&[7])]), Err(ShapeError::Unknown { task: 1, needs: 7 }));
        assert!(graph.extend([step(&[2]), step(&[1])]).is_err());
        assert_eq!((graph.len(), graph.progress().total()), (1, 1));
    }

    #[test]
    fn a_graph_grows_while_it_runs() {
        let mut graph = graph(vec![step(&[])]);
        graph.done(0);
        graph.extend([step(&[0]), step(&[1])]).expect("sound");
        assert_eq!(ready(&graph), [1]);
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let mut graph = graph(vec![step(&[]), step(&[0]), step(&[1]), step(&[])]);
        assert_eq!(graph.restore(0, Stage::Done, 2), [1]);
        graph.restore(1, Stage::Held, 1);
        graph.restore(3, Stage::Failed, 3);
        assert_eq!(ready(&graph), [1]);
        assert_eq!(graph.hold(1), Some(2));
        assert_eq!((graph.attempts(0), graph.attempts(3)), (2, 3));
        graph.drop_rest();
        let left = Progress { held: 1, done: 1, failed: 1, dropped: 1, ..Progress::default() };
        assert_eq!(graph.progress(), left);
        assert_eq!(graph.done(1), [0; 0], "what is dropped does not come back");
    }
}
