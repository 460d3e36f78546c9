// The communicator over a transport: checks arguments, names operations, sees to errors and stalls.
// Main entry: Group; its operations' programs are in collectives.h.
#pragma once

#include <anello/dist/engine.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace anello::dist {

/// While it lives, operations that this thread starts are waited for at once: nobody else need be woken.
struct Blocking {
  Blocking() : before(std::exchange(here(), true)) {}
  ~Blocking() { here() = before; }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;
  static bool& here();
  bool before;
};

class Group final : public Communicator {
 public:
  Group(std::shared_ptr<Transport> transport, std::shared_ptr<Engine> engine);
  ~Group() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  int host() const override { return host_; }
  int hosts() const override { return hosts_; }
  std::string transport_name() const override { return std::string(transport_->name()); }

  Work all_reduce_async(const Tensor& tensor, ReduceOp op, const CollectiveOptions& options) override;
  Work broadcast_async(const Tensor& tensor, int root, const CollectiveOptions& options) override;
  Work reduce_scatter_async(Tensor& output, const Tensor& input, ReduceOp op, const CollectiveOptions&) override;
  Work all_gather_async(Tensor& output, const Tensor& input, const CollectiveOptions& options) override;
  Work all_to_all_async(Tensor& output, const Tensor& input, const std::vector<int64_t>& counts,
                        const CollectiveOptions& options) override;
  Work send_async(const Tensor& tensor, int to, int tag) override;
  Work recv_async(const Tensor& into, int from, int tag) override;
  std::vector<Tensor> gather(const Tensor& input, int root, const CollectiveOptions& options) override;
  Tensor scatter(const std::vector<Tensor>& tensors, int root, const CollectiveOptions& options) override;
  std::string broadcast_bytes(const std::string& bytes, int root) override;
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override;
  void barrier() override;
  std::shared_ptr<Communicator> split(int color, int key) override;
  Tensor allocate_shared(int64_t numel, DType dtype) override;
  void set_stall_timeout(double seconds) override { stall_timeout_ = seconds; }
  double stall_timeout() const override { return stall_timeout_; }
  void abort(const std::string& reason) override;

  Engine& engine() const { return *engine_; }

  // --- For the engine, by whoever drives it ---
  /// Moves one operation; `first` when it is the oldest of its queue. True when something happened.
  bool step(Work::State& state, bool first);
  /// Takes in what other ranks report, and reports stalls. `blocked`: somebody waits on this rank.
  void look(const std::vector<StatePtr>& active, bool blocked);

 private:
  StatePtr make(Kind kind, const std::string& name, const Tensor* like);
  StatePtr make_message(Kind kind, const Tensor& tensor, int peer, int tag);
  Work start(const StatePtr& state, bool async);
  void check_root(std::string_view where, int root) const;
  void break_up(const std::string& reason, bool tell);
  // What ranks tell one another when nothing moves (report.cpp).
  struct Peer {
    Clock::time_point told{};                            ///< when it answered last
    bool blocked = false;                                ///< somebody waited there
    uint64_t calls = 0;                                  ///< operations called there so far
    int steady = 0;                                      ///< answers in a row that say blocked and the same calls
    std::string last;                                    ///< what ended last there, and when
    std::map<std::pair<uint32_t, uint64_t>, bool> came;  ///< by tag and count: whether it called what was asked about
    std::vector<std::pair<uint32_t, uint64_t>> waits;    ///< what is under way there
  };
  void handle_control(const Transport::Control& control, const std::vector<StatePtr>& active, bool blocked);
  void check_stalls(const std::vector<StatePtr>& active, bool blocked);
  void ask(const std::vector<const Work::State*>& mine, bool blocked);
  std::string answer(const std::string& question, const std::vector<StatePtr>& active, bool blocked) const;
  void take_answer(int from, const std::string& text);
  bool never_comes(const Work::State& state, int rank) const;
  std::string stall_text(const Work::State& state) const;
  bool was_called(uint32_t tag, uint64_t count) const;
  std::vector<const Work::State*> under_way(const std::vector<StatePtr>& active) const;

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Engine> engine_;
  int rank_, size_, local_rank_ = 0, local_size_ = 0, host_ = 0, hosts_ = 0;
  std::atomic<double> stall_timeout_;

  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> counts_;  // by name, how many operations were called
  uint64_t unnamed_ = 0;
  std::map<uint32_t, uint64_t> called_;  // by tag, one more than the last count
  uint64_t calls_ = 0;
  std::string broken_;  // why; "" while sound
  bool tells_ = false;  // the others are still to be told
  std::vector<std::weak_ptr<Group>> children_;

  // By whoever drives:
  std::string last_;  // the operation that ended last here
  Clock::time_point last_time_{};
  std::vector<Peer> peers_;
  Clock::time_point asked_{};
  int steady_ = 0;  // questions in a row asked while blocked and without a call between
  uint64_t calls_when_asked_ = 0;
};

}  // namespace anello::dist
