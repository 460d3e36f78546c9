// Downloading: what is there already, resuming, checking, errors. The fetcher is a shell script: no network is touched.
// Main entry: [download].
#include "catch.h"

#include <anello/core/error.h>
#include <anello/datasets/cifar10.h>
#include <anello/datasets/download.h>
#include <anello/datasets/sha256.h>

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace anello;
using namespace anello::data;
namespace fs = std::filesystem;

namespace {

struct Fixture {
  fs::path folder;
  std::string content;
  Download d;

  Fixture() {
    std::string name = (fs::temp_directory_path() / "anello-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder = name;
    for (int i = 0; i < 5000; ++i) content += std::to_string(i) + "\n";
    write(folder / "source", content);
    d.url = (folder / "source").string();
    d.path = (folder / "cache" / "deep" / "file").string();
    d.sha256 = sha256(content.data(), content.size());
    d.bytes = static_cast<int64_t>(content.size());
  }
  ~Fixture() { fs::remove_all(folder); }

  static void write(const fs::path& path, const std::string& bytes) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // A fetcher: a shell script that sees URL as $1 and FILE as $2.
  void script(const std::string& text) {
    write(folder / "fetch.sh", "set -e\necho run >> " + (folder / "runs").string() + "\n" + text + "\n");
    d.fetcher = {"sh", (folder / "fetch.sh").string()};
  }
  size_t runs() const { return read(folder / "runs").size() / 4; }
};

const char kAppendRest[] = "have=0; [ -f \"$2\" ] && have=$(wc -c < \"$2\"); tail -c +$((have + 1)) \"$1\" >> \"$2\"";

}  // namespace

TEST_CASE("a download arrives whole and is not repeated", "[download]") {
  Fixture f;
  f.script(kAppendRest);
  int64_t done = 0, total = 0;
  f.d.progress = [&](int64_t a, int64_t b) { done = a, total = b; };
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
  REQUIRE(!fs::exists(f.d.path + ".part"));
  REQUIRE(done == f.d.bytes);
  REQUIRE(total == f.d.bytes);
  download(f.d);
  REQUIRE(f.runs() == 1);
  f.d.bytes = 0;  // size unknown: the checksum tells
  download(f.d);
  REQUIRE(f.runs() == 1);
}

TEST_CASE("a download goes on where it stopped", "[download]") {
  Fixture f;
  f.script(std::string("[ -f \"$2\" ] || { head -c 777 \"$1\" > \"$2\"; echo connection lost >&2; exit 18; }\n") +
           kAppendRest);
  REQUIRE_THROWS_WITH(download(f.d), contains_text("connection lost") && contains_text("Hint:"));
  REQUIRE(fs::file_size(f.d.path + ".part") == 777);
  REQUIRE(!fs::exists(f.d.path));
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
  REQUIRE(f.runs() == 2);
}

TEST_CASE("a whole part needs no network", "[download]") {
  Fixture f;
  f.script("exit 1");
  Fixture::write(f.d.path + ".part", f.content);
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
  REQUIRE(!fs::exists(f.folder / "runs"));
}

TEST_CASE("a part of another file, or a server that cannot resume, means once more from the start", "[download]") {
  Fixture f;
  f.script(kAppendRest);
  Fixture::write(f.d.path + ".part", "something else");
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
  fs::remove(f.d.path);
  Fixture::write(f.d.path + ".part", f.content + "and more");
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
  fs::remove(f.d.path);
  f.script("[ -f \"$2\" ] && exit 33\ncat \"$1\" > \"$2\"");
  Fixture::write(f.d.path + ".part", f.content.substr(0, 100));
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
}

TEST_CASE("a wrong file is refused, and the earlier one stays", "[download]") {
  Fixture f;
  Fixture::write(f.d.path, "earlier");
  std::string other = f.content;
  other[100] = '#';
  Fixture::write(f.folder / "source", other);
  f.script(kAppendRest);
  REQUIRE_THROWS_AS(download(f.d), IoError);
  REQUIRE_THROWS_WITH(download(f.d),
                      contains_text("SHA-256 " + sha256(other.data(), other.size())) && contains_text(f.d.sha256));
  REQUIRE(Fixture::read(f.d.path) == "earlier");
  Fixture::write(f.folder / "source", f.content.substr(0, 500));
  REQUIRE_THROWS_WITH(download(f.d), contains_text("ended early") && contains_text("500 bytes, not"));
  REQUIRE(Fixture::read(f.d.path) == "earlier");
  REQUIRE(fs::file_size(f.d.path + ".part") == 500);
  Fixture::write(f.folder / "source", f.content);
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
}

TEST_CASE("the caller can stop a download; no child is left", "[download]") {
  Fixture f;
  f.script("head -c 50 \"$1\" > \"$2\"; echo $$ > \"" + (f.folder / "pid").string() + "\"; exec sleep 60");
  f.d.progress = [&](int64_t done, int64_t) {
    if (done == 50 && fs::exists(f.folder / "pid")) throw ValueError("enough");
  };
  REQUIRE_THROWS_WITH(download(f.d), contains_text("enough"));
  REQUIRE(fs::file_size(f.d.path + ".part") == 50);
  const pid_t pid = std::atoi(Fixture::read(f.folder / "pid").c_str());
  REQUIRE(pid > 0);
  REQUIRE(kill(pid, 0) != 0);
}

TEST_CASE("two that want the same file fetch it once", "[download]") {
  Fixture f;
  f.script(std::string("sleep 0.3\n") + kAppendRest);
  std::thread other([&] { download(f.d); });
  download(f.d);
  other.join();
  REQUIRE(f.runs() == 1);
  REQUIRE(Fixture::read(f.d.path) == f.content);
}

TEST_CASE("without a way to download the error names one", "[download]") {
  Fixture f;
  f.d.fetcher = {"anello-no-such-program"};
  f.d.hint = "look elsewhere";
  REQUIRE_THROWS_WITH(download(f.d), contains_text("anello-no-such-program") && contains_text("look elsewhere"));
  Fixture::write(f.folder / "file", "");
  f.d.path = (f.folder / "file" / "below").string();
  REQUIRE_THROWS_WITH(download(f.d), contains_text("cannot make the folder") && contains_text("ANELLO_CACHE"));
}

TEST_CASE("curl gets a file and says why it cannot", "[download]") {
  if (std::system("curl --version > /dev/null 2>&1") != 0) {
    WARN("skipped: curl is not installed");
    return;
  }
  Fixture f;
  f.d.url = "file://" + (f.folder / "source").string();
  Fixture::write(f.d.path + ".part", f.content.substr(0, 1234));
  download(f.d);
  REQUIRE(Fixture::read(f.d.path) == f.content);
  fs::remove(f.d.path);
  f.d.url = "http://127.0.0.1:9/file";
  REQUIRE_THROWS_WITH(download(f.d), contains_text("http://127.0.0.1:9/file") && contains_text("curl:"));
  setenv("ANELLO_CIFAR10_URL", "http://127.0.0.1:9/cifar", 1);
  REQUIRE_THROWS_WITH(download_cifar10((f.folder / "cache").string()), contains_text("http://127.0.0.1:9/cifar") &&
                                                                           contains_text("--data DIR") &&
                                                                           contains_text("--data synthetic"));
  unsetenv("ANELLO_CIFAR10_URL");
}

TEST_CASE("the cache folder", "[download]") {
  const auto get = [](const char* name) { return std::string(std::getenv(name) == nullptr ? "" : std::getenv(name)); };
  const std::string own = get("ANELLO_CACHE"), xdg = get("XDG_CACHE_HOME"), home = get("HOME");
  setenv("ANELLO_CACHE", "/a", 1), setenv("XDG_CACHE_HOME", "/x", 1), setenv("HOME", "/h", 1);
  REQUIRE(cache_dir() == "/a");
  unsetenv("ANELLO_CACHE");
  REQUIRE(cache_dir() == "/x/anello");
  unsetenv("XDG_CACHE_HOME");
  REQUIRE(cache_dir() == "/h/.cache/anello");
  unsetenv("HOME");
  REQUIRE_THROWS_AS(cache_dir(), IoError);
  for (const auto& [name, value] : {std::pair{"ANELLO_CACHE", own}, {"XDG_CACHE_HOME", xdg}, {"HOME", home}})
    if (!value.empty()) setenv(name, value.c_str(), 1);
}
