// The timeline's file: one JSON event a line, whatever names and threads do; nothing when it is off.
// Main entry: the tests.
#include <anello/core/error.h>
#include <anello/dist/timeline.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"

namespace dist = anello::dist;

namespace {

std::string path() { return "/tmp/anello_timeline_" + std::to_string(getpid()); }

std::vector<std::string> lines() {
  std::ifstream in(path());
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  std::remove(path().c_str());
  return all;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("A span is one event with its track, length and bytes", "[dist]") {
  dist::timeline_start(path());
  REQUIRE(dist::timeline_enabled());
  dist::timeline_record(dist::Track::communication, "bucket \"0\"\n", 1000.5, 1250.75, 4096);
  { dist::TimelineSpan span(dist::Track::wait, "wait"); }
  dist::timeline_stop();
  CHECK_FALSE(dist::timeline_enabled());
  const auto all = lines();
  REQUIRE(all.size() == 2);
  CHECK(all[0] ==
        R"({"ph": "X", "name": "bucket \"0\" ", "cat": "communication", "tid": 1, "ts": 1000.500, "dur": 250.250)"
        R"(, "args": {"bytes": 4096}})");
  CHECK(has(all[1], R"("cat": "wait", "tid": 2)"));
}

TEST_CASE("Steps follow each other and carry their samples", "[dist]") {
  dist::timeline_start(path());
  dist::timeline_step_begin();
  dist::timeline_step(32);
  dist::timeline_step(16);
  dist::timeline_stop();
  const auto all = lines();
  REQUIRE(all.size() == 2);
  CHECK((has(all[0], "step 1") && has(all[0], R"("samples": 32)")));
  CHECK((has(all[1], "step 2") && has(all[1], R"("samples": 16)")));
}

TEST_CASE("Lines of several threads stay whole", "[dist]") {
  dist::timeline_start(path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) dist::TimelineSpan span(dist::Track::compute, "a name of some length", i);
    });
  for (auto& thread : threads) thread.join();
  dist::timeline_stop();
  const auto all = lines();
  CHECK(all.size() == 1500);
  for (const auto& line : all) CHECK((line.front() == '{' && line.back() == '}'));
}

TEST_CASE("Nothing is written while it is off, and a bad path is an error", "[dist]") {
  CHECK_FALSE(dist::timeline_enabled());
  { dist::TimelineSpan span(dist::Track::compute, "unseen"); }
  dist::timeline_step(1);
  CHECK_THROWS_AS(dist::timeline_start("/nowhere/trace"), anello::IoError);
}

TEST_CASE("A full disk ends the trace, not the program", "[dist]") {
  if (access("/dev/full", W_OK) != 0) return;
  dist::timeline_start("/dev/full");
  dist::timeline_record(dist::Track::compute, "lost", 0, 1);
  dist::timeline_flush();
  CHECK_FALSE(dist::timeline_enabled());
}
