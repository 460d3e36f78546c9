// The messages of one operation, and the comparison of what two ranks say about it.
// Main entry: Channel, difference().
#include <anello/dist/channel.h>

#include <cstring>
#include <functional>

namespace anello::dist {

std::string_view name(Kind kind) {
  constexpr std::string_view names[] = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast",       "all_to_all",       "gather", "scatter",
      "send",       "recv",           "barrier",    "broadcast_bytes", "all_gather_bytes", "split",  "allocate_shared"};
  return names[static_cast<int>(kind)];
}

void Descriptor::set_shape(const Shape& shape) {
  dims = static_cast<uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), sizes);
}

void Descriptor::set_name(const std::string& text) {
  std::string shown = text;
  if (shown.size() >= kNameRoom) {
    const size_t hash = std::hash<std::string>{}(text);
    shown = concat(text.substr(0, kNameRoom - 24), "...", hash);
    shown.resize(std::min<size_t>(shown.size(), kNameRoom - 1));
  }
  std::fill(std::begin(name), std::end(name), 0);
  std::memcpy(name, shown.data(), shown.size());
}

std::string label(const Descriptor& d) {
  if (d.kind == Kind::send || d.kind == Kind::recv) return concat(" with tag ", d.count);
  return d.name[0] != 0 ? concat(" '", d.name, '\'') : concat(" number ", d.count);
}

namespace {

/// The shapes two ranks may differ in: dim 0 of what is gathered or exchanged, everything of gather and scatter.
Shape compared_shape(const Descriptor& d) {
  Shape shape = d.shape();
  const bool free = d.kind == Kind::gather || d.kind == Kind::scatter;
  if (free) return {};
  if ((d.kind == Kind::all_gather || d.kind == Kind::all_to_all) && !shape.empty()) shape[0] = -1;
  return shape;
}
bool pair_kinds(Kind a, Kind b) {
  return a == b || (a == Kind::send && b == Kind::recv) || (a == Kind::recv && b == Kind::send);
}

}  // namespace

std::string difference(const Descriptor& a, int rank_a, const Descriptor& b, int rank_b) {
  const auto text = [&](std::string_view what, const auto& of_a, const auto& of_b) {
    return concat('[', name(a.kind), "] rank ", rank_b, " gave ", what, ' ', of_b, ", rank ", rank_a, " gave ", of_a,
                  " for", label(a), ". Hint: every rank makes the same calls with the same arguments.");
  };
  if (!pair_kinds(a.kind, b.kind) || std::strcmp(a.name, b.name) != 0 || a.count != b.count)
    return concat('[', name(a.kind), "] rank ", rank_b, " is in ", name(b.kind), label(b), ", rank ", rank_a, " in ",
                  name(a.kind), label(a),
                  ". Hint: every rank makes the same calls in the same order; named ones may come in any order.");
  if (a.dtype != b.dtype) return text("dtype", a.dtype, b.dtype);
  if (!(compared_shape(a) == compared_shape(b))) return text("shape", a.shape(), b.shape());
  if (a.op != b.op) return text("op", a.op, b.op);
  if (a.root != b.root && a.kind != Kind::send && a.kind != Kind::recv) return text("root", a.root, b.root);
  if (a.prescale != b.prescale) return text("prescale", a.prescale, b.prescale);
  if (a.postscale != b.postscale) return text("postscale", a.postscale, b.postscale);
  return "";
}

Channel::Channel(Transport& transport, uint32_t tag, const Descriptor& mine)
    : transport_(transport), tag_(tag), mine_(mine), peers_(static_cast<size_t>(transport.size())) {}

Channel::~Channel() {
  for (Message& m : messages_)
    if (m.live && m.request != 0) transport_.cancel(m.request);
  for (Peer& p : peers_) {
    if (p.sending != 0) transport_.cancel(p.sending);
    if (p.receiving != 0) transport_.cancel(p.receiving);
  }
}

Channel::Ticket Channel::take_message() {
  if (free_.empty()) {
    messages_.emplace_back();
    free_.push_back(static_cast<Ticket>(messages_.size()));
  }
  const Ticket ticket = free_.back();
  free_.pop_back();
  messages_[ticket - 1] = {};
  messages_[ticket - 1].live = true;
  return ticket;
}

void Channel::announce(int to) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  if (std::exchange(peer.announced, true)) return;
  peer.sending = transport_.send(to, tag_, &mine_, sizeof mine_);
}

bool Channel::met(int from) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  if (peer.met) return true;
  if (!std::exchange(peer.asked, true))
    peer.receiving = transport_.receive(from, tag_, &peer.theirs, sizeof(Descriptor));
  if (!transport_.test(peer.receiving)) return false;
  const std::string wrong = difference(mine_, rank(), peer.theirs, from);
  if (!wrong.empty()) throw DistError(wrong);
  peer.met = moved_ = true;
  for (Ticket t : peer.deferred) {
    Message& m = messages_[t - 1];
    m.deferred = false;
    m.request = transport_.receive(from, tag_, m.data, m.bytes);
  }
  peer.deferred.clear();
  return true;
}

Channel::Ticket Channel::send(int to, const void* data, size_t bytes) {
  announce(to);
  const Ticket ticket = take_message();
  Message& m = messages_[ticket - 1];
  m.peer = to;
  m.request = transport_.send(to, tag_, data, bytes);
  return ticket;
}

Channel::Ticket Channel::receive(int from, void* data, size_t bytes) {
  const Ticket ticket = take_message();
  Message& m = messages_[ticket - 1];
  m.peer = from;
  if (peers_[static_cast<size_t>(from)].met) {
    m.request = transport_.receive(from, tag_, data, bytes);
  } else {
    m.data = data;
    m.bytes = bytes;
    m.deferred = true;
    peers_[static_cast<size_t>(from)].deferred.push_back(ticket);
    met(from);
  }
  return ticket;
}

bool Channel::test(Ticket& ticket) {
  if (ticket == 0) return true;
  if (messages_[ticket - 1].deferred && !met(messages_[ticket - 1].peer)) return false;
  Message& m = messages_[ticket - 1];
  if (!transport_.test(m.request)) return false;
  m.live = false;
  free_.push_back(ticket);
  ticket = 0;
  moved_ = true;
  return true;
}

bool Channel::flush() {
  bool all = true;
  for (Peer& peer : peers_) all &= transport_.test(peer.sending);
  return all;
}

std::vector<int> Channel::waits_for() const {
  std::vector<bool> waits(peers_.size());
  for (const Message& m : messages_)
    if (m.live) waits[static_cast<size_t>(m.peer)] = true;
  for (size_t i = 0; i < peers_.size(); ++i)
    if (peers_[i].asked && !peers_[i].met) waits[i] = true;
  std::vector<int> ranks;
  for (size_t i = 0; i < waits.size(); ++i)
    if (waits[i]) ranks.push_back(static_cast<int>(i));
  return ranks;
}

}  // namespace anello::dist
