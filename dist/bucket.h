// The memory gradients live in while ranks add them up: a block a dtype, cut into buckets that travel one by one.
// Main entry: GradientBuckets; DataParallel (dist/data_parallel.h) is the one who uses it.
#pragma once

#include <anello/dist/communicator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace anello::dist {

/// The dtype in which wider gradients travel. They are still added in float32, and rounded once more at the end.
enum class Compression { none, bf16, fp16 };

struct BucketOptions {
  int64_t first_bytes = int64_t{1} << 20;  ///< of the bucket that is full first: small, so that it leaves early
  int64_t bytes = int64_t{4} << 20;        ///< of the others; a larger parameter has one of its own
  Compression compression = Compression::none;
};

/// How the ranks' parts become one. The same on all ranks but for `scale` and `left_out`.
struct Weighting {
  bool average = false;   ///< plain mean over the ranks; else a sum of what each has scaled
  bool scaled = false;    ///< ranks differ in weight
  double scale = 1;       ///< this rank's
  bool left_out = false;  ///< this rank's part counts as nothing, even where it is NaN
};

/// Gives parameters (leaves that require a gradient) gradient destinations in memory that the ranks of a host share, so
/// that a reduction works in place. A bucket holds parameters of one dtype that become ready together, side by side;
/// the order decides which. Collective: every rank makes the same calls. One thread at a time.
class GradientBuckets {
 public:
  /// `name` is the same on all ranks and no other's. Buckets by `order` (places in `parameters`), see arrange().
  GradientBuckets(std::shared_ptr<Communicator> communicator, std::string name, std::vector<Tensor> parameters,
                  const std::vector<size_t>& order, BucketOptions options = {});
  /// Gradients that are there move to memory of their own.
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Sets up the buckets anew; gradients move with their parameters, without a second copy of the memory.
  void arrange(const std::vector<size_t>& order);
  size_t count() const { return buckets_.size(); }
  /// Places of the parameters in bucket b.
  const std::vector<size_t>& members(size_t b) const { return buckets_[b].members; }
  size_t bucket_of(size_t parameter) const { return place_[parameter].bucket; }
  /// A parameter's gradient memory.
  const Tensor& view(size_t parameter) const { return place_[parameter].view; }
  /// Bytes of gradient memory; copies for the wire are not counted.
  int64_t bytes() const;

  /// Starts the reduction of a bucket; its memory is not touched until finish(), which raises what went wrong.
  void start(size_t b, const Weighting& weighting);
  bool started(size_t b) const { return buckets_[b].started; }
  void finish(size_t b);
  /// Forgets reductions that were started: after an error.
  void reset();

 private:
  struct Place {
    size_t block = 0, bucket = 0;
    int64_t offset = 0, room = 0;  ///< in elements; room is numel rounded up to a cache line
    Tensor view;
  };
  struct Bucket {
    std::vector<size_t> members;
    Tensor memory, wire;  ///< wire: undefined unless compressed
    Tensor travels;       ///< the one under way
    Work work;
    bool started = false;
  };
  size_t block_of(DType dtype);
  void move_gradients(const std::vector<size_t>& order);
  void make_buckets(const std::vector<size_t>& order);

  std::shared_ptr<Communicator> communicator_;
  std::string name_;
  std::vector<Tensor> parameters_, blocks_, wires_;  ///< wires: undefined where gradients travel as they are
  BucketOptions options_;
  std::vector<Place> place_;
  std::vector<Bucket> buckets_;
  int generation_ = 0;
};

}  // namespace anello::dist
