// Buckets: where each gradient lies, and how a bucket travels.
// Main entry: GradientBuckets::start(), finish().
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/dist/bucket.h>
#include <anello/dist/timeline.h>

#include <algorithm>

namespace anello::dist {
namespace {

constexpr size_t kLine = 64;

int64_t room_of(const Tensor& parameter) {
  const auto line = static_cast<int64_t>(kLine / parameter.item_size());
  return (parameter.numel() + line - 1) / line * line;
}

Tensor part(const Tensor& block, const Shape& shape, int64_t offset) {
  return as_strided(block, shape, contiguous_strides(shape), block.storage_offset() + offset);
}

}  // namespace

GradientBuckets::GradientBuckets(std::shared_ptr<Communicator> communicator, std::string name,
                                 std::vector<Tensor> parameters, const std::vector<size_t>& order,
                                 BucketOptions options)
    : communicator_(std::move(communicator)),
      name_(std::move(name)),
      parameters_(std::move(parameters)),
      options_(options),
      place_(parameters_.size()) {
  std::vector<int64_t> sizes;
  for (size_t p : order) {
    const Tensor& parameter = parameters_[p];
    Place& place = place_[p];
    place.block = block_of(parameter.dtype());
    sizes.resize(blocks_.size());
    place.offset = sizes[place.block];
    place.room = room_of(parameter);
    sizes[place.block] += place.room;
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    blocks_[b] = communicator_->allocate_shared(sizes[b], blocks_[b].dtype());
    fill(blocks_[b], 0);
    const DType dtype = blocks_[b].dtype(), narrow = options_.compression == Compression::bf16 ? bfloat16 : float16;
    const bool compress = options_.compression != Compression::none && item_size(dtype) > item_size(narrow);
    wires_.push_back(compress ? communicator_->allocate_shared(sizes[b], narrow) : Tensor());
  }
  make_buckets(order);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    place_[p].view = part(blocks_[place_[p].block], parameters_[p].shape(), place_[p].offset);
    parameters_[p].set_grad_destination(place_[p].view);
  }
}

GradientBuckets::~GradientBuckets() {
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (parameters_[p].grad_destination().defined() && parameters_[p].grad_destination().is(place_[p].view))
      parameters_[p].set_grad_destination(Tensor());
}

/// Until the sizes are known, a block is an empty tensor that has the dtype.
size_t GradientBuckets::block_of(DType dtype) {
  for (size_t b = 0; b < blocks_.size(); ++b)
    if (blocks_[b].dtype() == dtype) return b;
  blocks_.push_back(empty({0}, dtype));
  return blocks_.size() - 1;
}

int64_t GradientBuckets::bytes() const {
  int64_t sum = 0;
  for (const Tensor& block : blocks_) sum += static_cast<int64_t>(block.nbytes());
  return sum;
}

void GradientBuckets::make_buckets(const std::vector<size_t>& order) {
  constexpr size_t kNone = SIZE_MAX;
  buckets_.clear();
  std::vector<size_t> open(blocks_.size(), kNone);
  std::vector<int64_t> begin(blocks_.size()), end(blocks_.size());
  const auto close = [&](size_t block) {
    Bucket& bucket = buckets_[std::exchange(open[block], kNone)];
    bucket.memory = part(blocks_[block], {end[block] - begin[block]}, begin[block]);
    if (wires_[block].defined()) bucket.wire = part(wires_[block], bucket.memory.shape(), begin[block]);
    begin[block] = end[block];
  };
  bool first = true;
  for (size_t p : order) {
    const size_t block = place_[p].block;
    const auto item = static_cast<int64_t>(parameters_[p].item_size());
    const int64_t limit = first ? options_.first_bytes : options_.bytes;
    if (open[block] != kNone && (end[block] - begin[block] + place_[p].room) * item > limit) {
      close(block);
      first = false;
    }
    if (open[block] == kNone) {
      open[block] = buckets_.size();
      buckets_.emplace_back();
    }
    place_[p].bucket = open[block];
    buckets_[open[block]].members.push_back(p);
    end[block] += place_[p].room;
  }
  for (size_t block = 0; block < blocks_.size(); ++block)
    if (open[block] != kNone) close(block);
  ++generation_;
}

/// Brings what lies in the blocks into the new order by rotations: each block of bytes that is not in its place is
/// brought there, and what lay between moves up.
void GradientBuckets::move_gradients(const std::vector<size_t>& order) {
  for (size_t block = 0; block < blocks_.size(); ++block) {
    std::vector<size_t> now, wanted;
    for (size_t p : order)
      if (place_[p].block == block) wanted.push_back(p);
    now = wanted;
    std::sort(now.begin(), now.end(), [&](size_t a, size_t b) { return place_[a].offset < place_[b].offset; });
    const size_t item = blocks_[block].item_size();
    auto* at = static_cast<char*>(blocks_[block].raw_data());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto found = std::find(now.begin() + static_cast<std::ptrdiff_t>(i), now.end(), wanted[i]);
      size_t between = 0;
      for (auto q = now.begin() + static_cast<std::ptrdiff_t>(i); q != found; ++q)
        between += static_cast<size_t>(place_[*q].room) * item;
      const size_t bytes = static_cast<size_t>(place_[wanted[i]].room) * item;
      if (between > 0) std::rotate(at, at + between, at + between + bytes);
      std::rotate(now.begin() + static_cast<std::ptrdiff_t>(i), found, found + 1);
      at += bytes;
    }
    int64_t offset = 0;
    for (size_t p : wanted) offset = (place_[p].offset = offset) + place_[p].room;
    blocks_[block].bump_version();
  }
}

void GradientBuckets::arrange(const std::vector<size_t>& order) {
  std::vector<bool> ours(parameters_.size()), has_gradient(parameters_.size());
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor destination = parameters_[p].grad_destination(), grad = parameters_[p].grad();
    ours[p] = destination.defined() && destination.is(place_[p].view);
    has_gradient[p] = ours[p] && grad.defined() && grad.is(destination);
    if (has_gradient[p]) parameters_[p].zero_grad();  // what it names is about to move
  }
  move_gradients(order);
  make_buckets(order);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    place_[p].view = part(blocks_[place_[p].block], parameters_[p].shape(), place_[p].offset);
    if (!ours[p]) continue;
    parameters_[p].set_grad_destination(place_[p].view);
    if (has_gradient[p]) parameters_[p].set_grad(place_[p].view);
  }
}

void GradientBuckets::start(size_t b, const Weighting& weighting) {
  const NoGradGuard no_grad;
  Bucket& bucket = buckets_[b];
  const bool narrow = item_size(bucket.memory.dtype()) == 2;
  if (weighting.left_out) fill(bucket.memory, 0);
  bucket.travels = bucket.memory;
  // 16-bit gradients are scaled in float32, so that they are rounded once, at the end.
  if (weighting.scaled && narrow) bucket.travels = copy_as(bucket.memory, float32);
  if (weighting.scaled && !weighting.left_out) mul_(bucket.travels, Scalar(weighting.scale));
  if (bucket.wire.defined()) {
    copy_into(bucket.wire, bucket.memory);
    bucket.travels = bucket.wire;
  }
  CollectiveOptions options;
  options.name = concat(name_, ".", generation_, ".bucket ", b);
  bucket.work =
      communicator_->all_reduce_async(bucket.travels, weighting.average ? ReduceOp::average : ReduceOp::sum, options);
  bucket.started = true;
  if (timeline_enabled())
    bucket.work.then(
        [begin = timeline_now(), name = concat("bucket ", b), bytes = static_cast<int64_t>(bucket.travels.nbytes())] {
          timeline_record(Track::communication, name, begin, timeline_now(), bytes);
        });
}

void GradientBuckets::finish(size_t b) {
  Bucket& bucket = buckets_[b];
  {
    const std::string name = timeline_enabled() ? concat("wait for bucket ", b) : std::string();
    const TimelineSpan waiting(Track::wait, name);
    bucket.work.wait();
  }
  if (!bucket.travels.is(bucket.memory)) copy_into(bucket.memory, bucket.travels);
  bucket.travels = Tensor();
  bucket.work = Work();
  bucket.started = false;
}

void GradientBuckets::reset() {
  for (Bucket& bucket : buckets_) {
    bucket.travels = Tensor();
    bucket.work = Work();
    bucket.started = false;
  }
}

}  // namespace anello::dist
