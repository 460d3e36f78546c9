// The loader: a ring of batches filled by workers in any order, emptied by the caller in the right one.
// Main entry: DataLoader::next().
#include <anello/core/interrupt.h>
#include <anello/datasets/loader.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace anello::data {

namespace {
constexpr std::string_view kOp = "DataLoader";
}

struct DataLoader::Job {
  BatchFunction make;
  BatchPlan plan;
  uint64_t seed, epoch;
  std::vector<int64_t> order;
  int64_t batches;

  Batch batch(int64_t k) const {
    const PlaceRange range = plan.range(k);
    BatchRequest request{{order.begin() + range.begin, order.begin() + range.end}, seed, epoch};
    Batch made = make(request);
    made.indices = std::move(request.indices);
    return made;
  }
};

class DataLoader::InUse {
 public:
  explicit InUse(std::atomic<bool>& flag) : flag_(flag) {
    check(!flag_.exchange(true, std::memory_order_acquire), kOp,
          "two threads use one loader at the same time. Hint: give each thread its own.");
  }
  ~InUse() { flag_.store(false, std::memory_order_release); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic<bool>& flag_;
};

class DataLoader::Crew {
 public:
  Crew(std::shared_ptr<const Job> job, int64_t first, int workers, int prefetch)
      : job_(std::move(job)), next_(first), taken_(first), owner_(getpid()) {
    const int count = static_cast<int>(std::min<int64_t>(workers, job_->batches - first));
    ring_.resize(static_cast<size_t>(std::max(count, prefetch)));
    threads_.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error& e) {
        if (i > 0) return;  // fewer will do
        fail<Error>(kOp, "no worker thread can be started (", e.what(), "). Hint: 0 workers do without.");
      }
    }
  }

  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  Batch take() {
    std::unique_lock lock(mutex_);
    Slot& slot = ring_[static_cast<size_t>(taken_) % ring_.size()];
    while (!slot.ready) {
      if (made_.wait_for(lock, std::chrono::milliseconds(50)) == std::cv_status::no_timeout) continue;
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
    Slot got = std::exchange(slot, Slot{});
    ++taken_;
    lock.unlock();
    room_.notify_one();
    if (got.error) std::rethrow_exception(got.error);
    return std::move(got.batch);
  }

  bool is_of_this_process() const { return owner_ == getpid(); }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
    bool ready = false;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto ring = static_cast<int64_t>(ring_.size());
      room_.wait(lock, [&] { return stop_ || next_ >= job_->batches || next_ < taken_ + ring; });
      if (stop_ || next_ >= job_->batches) return;
      const int64_t k = next_++;
      lock.unlock();
      Slot made;
      try {
        made.batch = job_->batch(k);
      } catch (...) {
        made.error = std::current_exception();
      }
      made.ready = true;
      lock.lock();
      ring_[static_cast<size_t>(k) % ring_.size()] = std::move(made);
      made_.notify_one();
    }
  }

  const std::shared_ptr<const Job> job_;
  std::mutex mutex_;
  std::condition_variable room_, made_;
  std::vector<Slot> ring_;  // batch k in slot k % size, from when it is made until it is taken
  int64_t next_, taken_;    // the next batch to make, to take
  bool stop_ = false;
  const pid_t owner_;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(int64_t count, BatchFunction make, const LoaderOptions& options)
    : count_(count), make_(std::move(make)), options_(options) {
  const LoaderOptions& o = options_;
  check<ValueError>(count >= 0, kOp, "the data set has ", count, " samples");
  check<ValueError>(o.batch_size >= 1, kOp, "batch_size is ", o.batch_size, ". Hint: at least 1.");
  check<ValueError>(o.workers >= 0, kOp, "workers is ", o.workers, ". Hint: 0 or more.");
  check<ValueError>(o.prefetch >= 1, kOp, "prefetch is ", o.prefetch, ". Hint: at least 1.");
  check<ValueError>(o.size >= 1 && o.rank >= 0 && o.rank < o.size, kOp, "rank ", o.rank, " of ", o.size,
                    " does not exist");
}

DataLoader::DataLoader(const ImageDataset& dataset, const LoaderOptions& options, const Augmentation& augmentation)
    : DataLoader(dataset.size(), BatchFunction(), options) {
  dataset.validate(kOp);
  const Shape& s = dataset.images.shape();
  const auto augmenter =
      std::make_shared<const Augmenter>(augmentation, s[1], s[2], s[3], dataset.mean, dataset.stddev);
  make_ = [augmenter, images = dataset.images, labels = dataset.labels](const BatchRequest& r) {
    return Batch{augmenter->batch(images, r.indices, r.seed, r.epoch), detail::gather_rows(kOp, labels, r.indices), {}};
  };
}

DataLoader::DataLoader(const TensorDataset& dataset, const LoaderOptions& options)
    : DataLoader(dataset.features.dim() == 0 ? 0 : dataset.size(), BatchFunction(), options) {
  const Tensor &x = dataset.features, &y = dataset.labels;
  check<ShapeError>(x.dim() > 0 && y.dim() > 0 && x.size(0) == y.size(0), kOp, "features ", x.shape(), " and labels ",
                    y.shape(), " differ in their first size");
  make_ = [features = contiguous_data(x), labels = contiguous_data(y)](const BatchRequest& r) {
    return Batch{detail::gather_rows(kOp, features, r.indices), detail::gather_rows(kOp, labels, r.indices), {}};
  };
}

DataLoader::~DataLoader() { dismiss_crew(); }

BatchPlan DataLoader::plan(int64_t start) const {
  return {count_, start, options_.batch_size, options_.rank, options_.size, options_.drop_last};
}

int64_t DataLoader::batches_ahead() const { return plan(position_is_set_ ? position_ : 0).batches(); }

void DataLoader::set_epoch(uint64_t epoch) { set_state({options_.seed, epoch, 0, count_}); }

LoaderState DataLoader::state() const {
  const InUse guard(in_use_);
  if (finished_) return {options_.seed, epoch_ + 1, 0, count_};
  return {options_.seed, epoch_, position_, count_};
}

void DataLoader::set_state(const LoaderState& state) {
  const InUse guard(in_use_);
  check<ValueError>(state.count == count_, kOp, "the state is of a data set of ", state.count,
                    " samples, this one has ", count_);
  check<ValueError>(state.position >= 0 && state.position <= count_, kOp, "the state's position ", state.position,
                    " is outside [0, ", count_, "]");
  dismiss_crew();
  running_ = finished_ = false;
  options_.seed = state.seed;
  epoch_ = state.epoch;
  position_ = state.position;
  position_is_set_ = true;
}

uint64_t DataLoader::start() {
  const InUse guard(in_use_);
  dismiss_crew();
  if (!position_is_set_) ++epoch_, position_ = 0;
  position_is_set_ = finished_ = false;
  const BatchPlan p = plan(position_);
  job_ = std::make_shared<const Job>(
      Job{make_, p, options_.seed, epoch_, epoch_order(count_, options_.shuffle, options_.seed, epoch_), p.batches()});
  taken_ = 0;
  running_ = true;
  return ++loop_;
}

std::optional<Batch> DataLoader::next(uint64_t loop) {
  const InUse guard(in_use_);
  check(loop == loop_, kOp, "this loop ended when another one over the same loader began. Hint: one loader for each.");
  if (!running_) return std::nullopt;
  if (taken_ == job_->batches) {
    dismiss_crew();
    running_ = false;
    finished_ = true;
    return std::nullopt;
  }
  Batch batch = make_next();
  position_ = job_->plan.position_after(taken_++);
  return batch;
}

Batch DataLoader::make_next() {
  if (options_.workers == 0) {
    check_interrupt();
    return job_->batch(taken_);
  }
  if (crew_ != nullptr && !crew_->is_of_this_process()) dismiss_crew();
  if (crew_ == nullptr) crew_ = new Crew(job_, taken_, options_.workers, options_.prefetch);
  try {
    return crew_->take();
  } catch (...) {
    dismiss_crew();  // a later call tries this batch again
    throw;
  }
}

void DataLoader::stop(uint64_t loop) {
  if (loop != loop_ || in_use_.exchange(true, std::memory_order_acquire)) return;
  dismiss_crew();
  running_ = false;
  in_use_.store(false, std::memory_order_release);
}

// In a forked child the threads are gone and their mutex may be held for ever: the crew's memory is left where it is.
void DataLoader::dismiss_crew() noexcept {
  if (crew_ != nullptr && crew_->is_of_this_process()) delete crew_;
  crew_ = nullptr;
}

}  // namespace anello::data
