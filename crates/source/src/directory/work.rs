//! Does what the queue says, in slices where it takes long.

use myriad_api::Batch;
use myriad_base::clock::Instant;

use super::comparison::Seen;
use super::job::{Job, Scope};
use super::queue::Work;
use super::slice::{SLICE_BYTES, Slice};
use super::{Directory, JOBS_MAX, telling};

impl Directory {
    /// Looks at what the queue says. Whatever is to be read file by file goes back into it.
    pub(super) fn perform(&mut self, work: Work) -> Option<Batch> {
        let owners = self.queue.owners(&work);
        let scope = match &work {
            Work::Everything => Scope::Everything,
            Work::Survey(_, number) => Scope::Survey(*number),
            _ => Scope::Paths,
        };
        let mut job = Job::new(owners, scope);
        job.noticed = self.noticed;
        let is_one_batch = matches!(&work, Work::Links(_));
        match work {
            Work::Paths(paths) => {
                for path in &paths {
                    if self.examine(path, &mut job.seen) {
                        job.starts.push_back(path.clone());
                    }
                }
                job.seen.is_one_batch |= paths.len() > 1;
            }
            Work::Survey(owner, _) => {
                let mut seen = Seen::default();
                if self.examine(&owner, &mut seen) {
                    job.starts.push_back(owner);
                }
                job.seen.gone = seen.dirty;
            }
            Work::Rival(path) => job.seen.dirty.push(path),
            Work::Links(_) | Work::Everything if self.only.is_some() => {
                if !is_one_batch {
                    self.watch.anchor();
                }
                job.seen = self.rescan_only();
                job.seen.is_one_batch = is_one_batch;
            }
            Work::Links(directory) => {
                job.seen.is_one_batch = true;
                job.starts.push_back(directory);
            }
            Work::Everything => {
                self.watch.anchor();
                job.starts.push_back(self.root.clone());
            }
        }
        if self.advance(&mut job) {
            return self.finish(job);
        }
        self.queue.block(&job.owners);
        if self.jobs.len() < JOBS_MAX {
            self.jobs.push_back(job);
        } else {
            job.forget();
            self.waiting.push_back(job);
        }
        None
    }

    /// Does one more slice of what is under way.
    pub(super) fn read_on(&mut self) -> Option<Batch> {
        let mut job = self.jobs.pop_front()?;
        if !self.advance(&mut job) || !job.is_current(&self.knowledge()) {
            self.jobs.push_back(job);
            return None;
        }
        self.queue.release(&job.owners);
        self.jobs.extend(self.waiting.pop_front());
        self.finish(job)
    }

    /// Does one slice of a job. Returns whether all of it has been done.
    fn advance(&mut self, job: &mut Job) -> bool {
        let processor_time = self.processor_time.clone();
        let mut slice = Slice::new(SLICE_BYTES, &*processor_time);
        if !self.look_around(job, &mut slice) {
            return false;
        }
        self.settle(job);
        job.step(&self.knowledge(), &mut slice)
    }

    /// Takes over what was found, once all directories of a job have been looked at.
    fn settle(&mut self, job: &mut Job) {
        let mut seen = std::mem::take(&mut job.seen);
        match job.scope {
            Scope::Paths => {}
            Scope::Everything => {
                let number = self.survey.begin(seen.owners.len(), &mut seen.gone);
                for owner in seen.owners {
                    self.queue.push_survey(owner, number);
                }
            }
            Scope::Survey(number) => self.survey.end(number, &mut seen.gone),
        }
        let mut files = seen.dirty;
        files.extend(seen.gone);
        // Files of all owners are read as work of each.
        let is_apart = job.scope != Scope::Paths;
        if !seen.is_one_batch && (files.len() > 1 || is_apart) {
            for path in files.drain(..) {
                self.queue.push(path);
            }
        }
        job.scope = Scope::Paths;
        job.add(seen.parsed, files);
    }

    /// The batch of a job of which all has been read.
    fn finish(&mut self, job: Job) -> Option<Batch> {
        let noticed = job.noticed.map(Instant::into_std);
        let mut batch = self.apply(job.into_parsed());
        batch.noticed = noticed;
        telling(batch)
    }
}
