// The collectives of a communicator: arguments are checked, memory is made, a program is started.
// Main entry: Group::all_reduce_async() and the others of dist/communicator.h.
#include <anello/dist/collectives.h>
#include <anello/dist/group.h>

#include <cstring>
#include <numeric>

namespace anello::dist {
namespace {

int64_t nbytes(const Tensor& t) { return static_cast<int64_t>(t.nbytes()); }
/// Bytes of one row, also of a tensor without rows.
int64_t row_bytes(const Tensor& t) {
  int64_t bytes = static_cast<int64_t>(t.item_size());
  for (int d = 1; d < t.dim(); ++d) bytes *= t.shape()[d];
  return bytes;
}
Shape with_rows(const Tensor& like, int64_t rows) {
  Shape shape = like.shape();
  shape[0] = rows;
  return shape;
}
void check_rows(std::string_view where, const Tensor& input) {
  check<ShapeError>(input.dim() >= 1, where, "a tensor without dims has no rows: (). Hint: x.reshape(1).");
}

/// Makes results[0] of `rows` rows.
char* make_rows(Work::State& state, const Tensor& like, int64_t rows) {
  state.results = {empty(with_rows(like, rows), like.dtype())};
  return static_cast<char*>(state.results[0].raw_data());
}

/// The operand in contiguous memory; after the operation it is copied back when that is not its own.
Tensor in_place_buffer(Work::State& state, const Tensor& tensor) {
  const Tensor buffer = contiguous_data(tensor);
  const bool own = tensor.is_contiguous();
  state.keep = {tensor, buffer};
  state.finish = [tensor, buffer, own] {
    if (own)
      tensor.bump_version();
    else
      copy_into(tensor, buffer);
  };
  return buffer;
}

void check_writable(std::string_view where, const Tensor& tensor) {
  check<Error>(tensor.storage()->writable(), where, "the tensor's memory is read-only. Hint: use a copy of it.");
  for (int d = 0; d < tensor.dim(); ++d)
    check<ShapeError>(tensor.shape()[d] <= 1 || tensor.strides()[d] != 0, where, "the tensor ", tensor.shape(),
                      " is expanded, its elements share memory. Hint: use a contiguous copy of it.");
}

/// Root's side of gather: each rank's descriptor tells the shape of what it sends.
Task collect(Work::State& state, Tensor input) {
  Channel& channel = *state.channel;
  state.results.resize(static_cast<size_t>(channel.size()));
  for (int r = 0; r < channel.size(); ++r) {
    Tensor& result = state.results[static_cast<size_t>(r)];
    if (r == channel.rank()) {
      result = copy_as(input, input.dtype());
      continue;
    }
    while (!channel.met(r)) co_await pause();
    result = empty(channel.theirs(r).shape(), channel.theirs(r).dtype);
    co_await receive(channel, result.raw_data(), nbytes(result), r);
  }
  co_await meet_neighbours(channel);
}
Task deliver(Channel& channel, Tensor input, int root) {
  co_await send(channel, input.raw_data(), nbytes(input), root);
  co_await meet_neighbours(channel);
}

struct Header {
  int64_t dtype = 0, dims = 0, sizes[kMaxDims] = {};
};
Task hand_out(Work::State& state, std::vector<Tensor> tensors) {
  Channel& channel = *state.channel;
  std::vector<Header> headers(tensors.size());
  std::vector<Channel::Ticket> sending;
  for (size_t r = 0; r < tensors.size(); ++r) {
    const Tensor& t = tensors[r];
    headers[r] = {static_cast<int64_t>(t.dtype()), t.dim(), {}};
    std::copy(t.shape().begin(), t.shape().end(), headers[r].sizes);
    if (static_cast<int>(r) == channel.rank()) continue;
    sending.push_back(channel.send(static_cast<int>(r), &headers[r], sizeof(Header)));
    sending.push_back(channel.send(static_cast<int>(r), t.raw_data(), t.nbytes()));
  }
  state.results = {copy_as(tensors[static_cast<size_t>(channel.rank())], tensors[0].dtype())};
  for (Channel::Ticket& ticket : sending)
    while (!channel.test(ticket)) co_await pause();
  co_await meet_neighbours(channel);
}
Task take_part(Work::State& state, int root) {
  Header header;
  co_await receive(*state.channel, &header, sizeof header, root);
  const Shape shape(header.sizes, header.sizes + header.dims);
  state.results = {empty(shape, static_cast<DType>(header.dtype))};
  co_await receive(*state.channel, state.results[0].raw_data(), nbytes(state.results[0]), root);
  co_await meet_neighbours(*state.channel);
}

Task broadcast_string(Work::State& state, std::string bytes, int root) {
  int64_t length = static_cast<int64_t>(bytes.size());
  co_await broadcast(*state.channel, &length, sizeof length, root);
  state.results = {empty({length}, uint8)};
  if (state.channel->rank() == root && length > 0) std::memcpy(state.results[0].raw_data(), bytes.data(), bytes.size());
  co_await broadcast(*state.channel, state.results[0].raw_data(), length, root);
}

std::string string_of(const Tensor& bytes) {
  return std::string(static_cast<const char*>(bytes.raw_data()), bytes.nbytes());
}

}  // namespace

Work Group::all_reduce_async(const Tensor& tensor, ReduceOp op, const CollectiveOptions& options) {
  Reduction how{tensor.dtype(), op, options.prescale, options.postscale, op == ReduceOp::average ? size_ : 1};
  check_reduction("all_reduce", how);
  check_writable("all_reduce", tensor);
  const StatePtr state = make(Kind::all_reduce, options.name, &tensor);
  state->mine.op = op;
  state->mine.prescale = options.prescale;
  state->mine.postscale = options.postscale;
  const Tensor buffer = in_place_buffer(*state, tensor);
  state->program = [how, buffer](Work::State& s) {
    return dist::all_reduce(Ring::of_all(*s.channel), how, buffer.raw_data(), buffer.numel());
  };
  return start(state, true);
}

Work Group::broadcast_async(const Tensor& tensor, int root, const CollectiveOptions& options) {
  check_root("broadcast", root);
  check_writable("broadcast", tensor);
  const StatePtr state = make(Kind::broadcast, options.name, &tensor);
  state->mine.root = root;
  const Tensor buffer = in_place_buffer(*state, tensor);
  state->program = [root, buffer](Work::State& s) {
    return dist::broadcast(*s.channel, buffer.raw_data(), nbytes(buffer), root);
  };
  return start(state, true);
}

Work Group::reduce_scatter_async(Tensor& output, const Tensor& input, ReduceOp op, const CollectiveOptions& options) {
  check_rows("reduce_scatter", input);
  Reduction how{input.dtype(), op, options.prescale, options.postscale, op == ReduceOp::average ? size_ : 1};
  check_reduction("reduce_scatter", how);
  const StatePtr state = make(Kind::reduce_scatter, options.name, &input);
  state->mine.op = op;
  state->mine.prescale = options.prescale;
  state->mine.postscale = options.postscale;
  state->output = &output;
  const Tensor buffer = copy_as(input, input.dtype());
  const int64_t rows = input.shape()[0], row = row_bytes(input) / static_cast<int64_t>(input.item_size());
  std::vector<Slice> slices = dist::split(rows, size_);
  const Slice own = slices[static_cast<size_t>(rank_)];
  for (Slice& s : slices) s = {s.begin * row, s.end * row};
  state->keep = {buffer};
  state->program = [how, buffer, slices](Work::State& s) {
    return dist::reduce_scatter(*s.channel, how, buffer.raw_data(), slices);
  };
  state->finish = [raw = state.get(), buffer, own] {
    char* const rows_of_mine = make_rows(*raw, buffer, own.end - own.begin);
    const size_t bytes = raw->results[0].nbytes();
    if (bytes > 0)
      std::memcpy(rows_of_mine, static_cast<char*>(buffer.raw_data()) + own.begin * row_bytes(buffer), bytes);
  };
  return start(state, true);
}

Work Group::all_gather_async(Tensor& output, const Tensor& input, const CollectiveOptions& options) {
  check_rows("all_gather", input);
  const StatePtr state = make(Kind::all_gather, options.name, &input);
  state->output = &output;
  const Tensor mine = contiguous_data(input);
  const int64_t row = row_bytes(mine), rows = mine.shape()[0];
  state->keep = {mine};
  state->program = [mine, row, rows](Work::State& s) {
    // Rows are counted, not bytes: rows of no bytes are rows too.
    const int64_t unit = std::max<int64_t>(row, 1);
    return gather_bytes(*s.channel, mine.raw_data(), rows * unit,
                        [&s, mine, unit, row](const std::vector<int64_t>& sizes) {
                          const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) / unit;
                          char* const memory = make_rows(s, mine, all);
                          return row > 0 ? memory : static_cast<char*>(nullptr);
                        });
  };
  return start(state, true);
}

Work Group::all_to_all_async(Tensor& output, const Tensor& input, const std::vector<int64_t>& counts,
                             const CollectiveOptions& options) {
  check_rows("all_to_all", input);
  const int64_t rows = input.shape()[0];
  std::vector<int64_t> sizes = counts;
  if (counts.empty()) {
    check<ShapeError>(rows % size_ == 0, "all_to_all", rows, " rows cannot be dealt evenly to ", size_,
                      " ranks. Hint: give counts, the rows for each rank.");
    sizes.assign(static_cast<size_t>(size_), rows / size_);
  }
  check<ShapeError>(static_cast<int>(sizes.size()) == size_, "all_to_all", "there are ", sizes.size(), " counts for ",
                    size_, " ranks.");
  int64_t total = 0;
  for (int64_t count : sizes) {
    check<ShapeError>(count >= 0, "all_to_all", "a count is ", count, ", it must not be negative.");
    total += count;
  }
  check<ShapeError>(total == rows, "all_to_all", "the counts add up to ", total, ", the input has ", rows, " rows.");
  const StatePtr state = make(Kind::all_to_all, options.name, &input);
  state->output = &output;
  const Tensor mine = contiguous_data(input);
  const int64_t row = row_bytes(mine), unit = std::max<int64_t>(row, 1);
  for (int64_t& size : sizes) size *= row;
  state->keep = {mine};
  check<ShapeError>(row > 0 || rows == 0, "all_to_all", "rows of ", input.shape(), " have no elements.");
  state->program = [mine, sizes, unit](Work::State& s) {
    return exchange_bytes(*s.channel, static_cast<const char*>(mine.raw_data()), sizes,
                          [&s, mine, unit](const std::vector<int64_t>& incoming) {
                            return make_rows(s, mine,
                                             std::accumulate(incoming.begin(), incoming.end(), int64_t{0}) / unit);
                          });
  };
  return start(state, true);
}

Work Group::send_async(const Tensor& tensor, int to, int tag) {
  check<ValueError>(to >= 0 && to < size_ && to != rank_, "send", "rank ", rank_, " cannot send to rank ", to, " of ",
                    size_, '.');
  const StatePtr state = make_message(Kind::send, tensor, to, tag);
  const Tensor mine = contiguous_data(tensor);
  state->keep = {mine};
  state->program = [mine, to](Work::State& s) { return dist::send(*s.channel, mine.raw_data(), nbytes(mine), to); };
  return start(state, true);
}

Work Group::recv_async(const Tensor& into, int from, int tag) {
  check<ValueError>(from >= 0 && from < size_ && from != rank_, "recv", "rank ", rank_, " cannot receive from rank ",
                    from, " of ", size_, '.');
  check_writable("recv", into);
  const StatePtr state = make_message(Kind::recv, into, from, tag);
  const Tensor buffer = in_place_buffer(*state, into);
  state->program = [buffer, from](Work::State& s) {
    return dist::receive(*s.channel, buffer.raw_data(), nbytes(buffer), from);
  };
  return start(state, true);
}

std::vector<Tensor> Group::gather(const Tensor& input, int root, const CollectiveOptions& options) {
  check_root("gather", root);
  const StatePtr state = make(Kind::gather, options.name, &input);
  state->mine.root = root;
  const Tensor mine = contiguous_data(input);
  state->keep = {mine};
  state->program = [mine, root](Work::State& s) {
    return s.channel->rank() == root ? collect(s, mine) : deliver(*s.channel, mine, root);
  };
  start(state, false);
  return state->results;
}

Tensor Group::scatter(const std::vector<Tensor>& tensors, int root, const CollectiveOptions& options) {
  check_root("scatter", root);
  const bool gives = rank_ == root;
  check<ValueError>(static_cast<int>(tensors.size()) == (gives ? size_ : 0), "scatter", "rank ", rank_, " gave ",
                    tensors.size(), " tensors; root ", root, " gives one for each of the ", size_,
                    " ranks, the others none.");
  const StatePtr state = make(Kind::scatter, options.name, nullptr);
  state->mine.root = root;
  std::vector<Tensor> mine;
  for (const Tensor& t : tensors) {
    check<DTypeError>(t.dtype() == tensors[0].dtype(), "scatter", "the tensors differ in dtype: ", tensors[0].dtype(),
                      " and ", t.dtype(), '.');
    mine.push_back(contiguous_data(t));
  }
  state->program = [mine, root, gives](Work::State& s) { return gives ? hand_out(s, mine) : take_part(s, root); };
  start(state, false);
  return state->results[0];
}

std::string Group::broadcast_bytes(const std::string& bytes, int root) {
  check_root("broadcast_bytes", root);
  const StatePtr state = make(Kind::broadcast_bytes, "", nullptr);
  state->mine.root = root;
  state->program = [bytes, root](Work::State& s) { return broadcast_string(s, bytes, root); };
  start(state, false);
  return string_of(state->results[0]);
}

std::vector<std::string> Group::all_gather_bytes(const std::string& bytes) {
  const StatePtr state = make(Kind::all_gather_bytes, "", nullptr);
  std::vector<int64_t> lengths;
  state->program = [&bytes, &lengths](Work::State& s) {
    return gather_bytes(*s.channel, bytes.data(), static_cast<int64_t>(bytes.size()),
                        [&s, &lengths](const std::vector<int64_t>& sizes) {
                          lengths = sizes;
                          s.results = {empty({std::accumulate(sizes.begin(), sizes.end(), int64_t{0})}, uint8)};
                          return static_cast<char*>(s.results[0].raw_data());
                        });
  };
  start(state, false);
  const std::string all = string_of(state->results[0]);
  std::vector<std::string> parts;
  size_t begin = 0;
  for (int64_t length : lengths) {
    parts.push_back(all.substr(begin, static_cast<size_t>(length)));
    begin += static_cast<size_t>(length);
  }
  return parts;
}

void Group::barrier() {
  const StatePtr state = make(Kind::barrier, "", nullptr);
  state->program = [](Work::State& s) { return dist::barrier(*s.channel); };
  start(state, false);
}

Tensor Group::allocate_shared(int64_t numel, DType dtype) { return empty({numel}, dtype); }

}  // namespace anello::dist
