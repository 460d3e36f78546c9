// Data sets: CIFAR-10 from files made here, the archive reader, the procedural set, SHA-256.
// Main entry: [datasets]. ANELLO_CIFAR10 names a folder with the real files for the last tests.
#include "catch.h"

#include <anello/datasets/archive.h>
#include <anello/datasets/cifar10.h>
#include <anello/datasets/sha256.h>
#include <anello/datasets/synthetic.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

using namespace anello;
using namespace anello::data;
namespace fs = std::filesystem;

namespace {

// The elements as they lie in memory.
template <class T>
std::vector<T> values(const Tensor& t) {
  return std::vector<T>(t.data<T>(), t.data<T>() + t.numel());
}

// A folder that goes when the test ends.
struct TempFolder {
  fs::path path;
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "anello-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TempFolder() { fs::remove_all(path); }
};

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

constexpr size_t kRecord = 3073, kFile = 10000 * kRecord;
const std::vector<std::string> kNames{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                      "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

// A file of the right form: all zero but for record 1 (label = number + 1; planes count up from 10, 90 and 170) and the
// last label.
std::string made_file(size_t number) {
  std::string bytes(kFile, '\0');
  char* record = bytes.data() + kRecord;
  record[0] = static_cast<char>(number + 1);
  for (size_t p = 0; p < 1024; ++p)
    for (size_t c = 0; c < 3; ++c) record[1 + c * 1024 + p] = static_cast<char>(10 + 80 * c + p % 80);
  bytes[9999 * kRecord] = 9;
  return bytes;
}

void write_folder(const fs::path& folder) {
  fs::create_directories(folder);
  for (size_t i = 0; i < kNames.size(); ++i) write(folder / kNames[i], made_file(i));
}

void check_made(const ImageSplits& s) {
  REQUIRE(s.train.images.shape() == Shape{50000, 32, 32, 3});
  REQUIRE(s.test.images.shape() == Shape{10000, 32, 32, 3});
  REQUIRE_NOTHROW(s.train.validate("test"));
  REQUIRE(s.train.class_names.size() == 10);
  REQUIRE(s.train.class_names[6] == "frog");
  for (int64_t i = 0; i < 6; ++i) {
    const ImageDataset& d = i < 5 ? s.train : s.test;
    const int64_t first = i < 5 ? i * 10000 : 0;
    REQUIRE(d.labels.data<int64_t>()[first] == 0);
    REQUIRE(d.labels.data<int64_t>()[first + 1] == i + 1);
    REQUIRE(d.labels.data<int64_t>()[first + 9999] == 9);
    const uint8_t* pixel = d.images.data<uint8_t>() + (first + 1) * 3072;
    bool same = true;
    for (int p = 0; p < 1024; ++p)
      for (int c = 0; c < 3; ++c) same = same && *pixel++ == 10 + 80 * c + p % 80;
    REQUIRE(same);
  }
}

std::string tar_header(const std::string& name, size_t size, char type = '0') {
  std::string h(512, '\0');
  std::memcpy(h.data(), name.data(), name.size());
  std::snprintf(h.data() + 100, 8, "%07o", 0644);
  std::snprintf(h.data() + 124, 12, "%011zo", size);
  std::memset(h.data() + 148, ' ', 8);
  h[156] = type;
  std::memcpy(h.data() + 257, "ustar\00000", 8);
  unsigned sum = 0;
  for (const char c : h) sum += static_cast<unsigned char>(c);
  std::snprintf(h.data() + 148, 8, "%06o", sum);
  return h;
}

std::string tar_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string tar = tar_header("cifar-10-batches-bin/", 0, '5');
  for (const auto& [name, content] : members) {
    tar += tar_header(name, content.size()) + content;
    tar.resize((tar.size() + 511) / 512 * 512);
  }
  return tar + std::string(1024, '\0');
}

void gzip(const fs::path& path) { REQUIRE(std::system(("gzip -1 " + path.string()).c_str()) == 0); }

}  // namespace

TEST_CASE("SHA-256 of the standard's examples", "[datasets]") {
  const auto of = [](const std::string& s) { return sha256(s.data(), s.size()); };
  REQUIRE(of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  REQUIRE(of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  REQUIRE(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  REQUIRE(of(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  Sha256 pieces;
  for (const size_t n : {1, 63, 64, 65, 127, 680}) pieces.update(std::string(n, 'a').data(), n);
  REQUIRE(pieces.finish() == of(std::string(1000, 'a')));
}

TEST_CASE("CIFAR-10 from a folder, and what is wrong with one", "[datasets]") {
  const TempFolder temp;
  const fs::path folder = temp.path / "cifar-10-batches-bin";
  write_folder(folder);
  check_made(load_cifar10(folder.string()));
  check_made(load_cifar10(temp.path.string()));  // the folder above
  REQUIRE_THROWS_WITH(load_cifar10(folder.string(), Verify::always),
                      contains_text("data_batch_1.bin has SHA-256") &&
                          contains_text("cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"));

  std::string bytes = made_file(2);
  bytes[7 * kRecord] = 10;
  write(folder / kNames[2], bytes);
  REQUIRE_THROWS_WITH(load_cifar10(folder.string()), contains_text("data_batch_3.bin: label of record 7 is 10"));
  bytes.pop_back();
  write(folder / kNames[2], bytes);
  REQUIRE_THROWS_WITH(load_cifar10(folder.string()),
                      contains_text("data_batch_3.bin has 30729999 bytes, not 30730000"));
  fs::remove(folder / kNames[2]);
  REQUIRE_THROWS_AS(load_cifar10(folder.string()), IoError);
  REQUIRE_THROWS_WITH(load_cifar10(folder.string()), contains_text("data_batch_3.bin is missing"));
}

TEST_CASE("CIFAR-10 that is not there", "[datasets]") {
  const TempFolder temp;
  REQUIRE_THROWS_WITH(load_cifar10((temp.path / "nowhere").string()),
                      contains_text("there is no") && contains_text("nowhere"));
  REQUIRE_THROWS_WITH(load_cifar10(temp.path.string()), contains_text("holds neither"));
  fs::create_directory(temp.path / "cifar-10-batches-py");
  REQUIRE_THROWS_WITH(load_cifar10(temp.path.string()), contains_text("files for Python"));
}

TEST_CASE("CIFAR-10 from an archive, and what is wrong with one", "[datasets]") {
  const TempFolder temp;
  std::vector<std::pair<std::string, std::string>> members{{"cifar-10-batches-bin/readme.html", "not needed"}};
  for (size_t i = 6; i-- > 0;) members.emplace_back("cifar-10-batches-bin/" + kNames[i], made_file(i));  // any order
  const fs::path tar = temp.path / "cifar-10-binary.tar", archive = temp.path / "cifar-10-binary.tar.gz";
  write(tar, tar_of(members));
  gzip(tar);
  check_made(load_cifar10(archive.string(), Verify::never));
  check_made(load_cifar10(temp.path.string(), Verify::never));  // the folder that holds it
  REQUIRE_THROWS_WITH(load_cifar10(archive.string()),
                      contains_text("has SHA-256") && contains_text("test_batch.bin in"));

  std::ifstream in(archive, std::ios::binary);
  const std::string packed((std::istreambuf_iterator<char>(in)), {});
  write(archive, packed.substr(0, packed.size() / 2));
  REQUIRE_THROWS_AS(load_cifar10(archive.string(), Verify::never), IoError);
  REQUIRE_THROWS_WITH(load_cifar10(archive.string(), Verify::never), contains_text("is truncated"));
  std::string damaged = packed;
  for (size_t i = 0; i < 64; ++i) damaged[damaged.size() / 2 + i] = static_cast<char>(0xff);
  write(archive, damaged);
  REQUIRE_THROWS_AS(load_cifar10(archive.string(), Verify::never), IoError);

  members.pop_back();
  write(archive, tar_of(members));  // not compressed: read all the same
  REQUIRE_THROWS_WITH(load_cifar10(archive.string(), Verify::never), contains_text("data_batch_1.bin is missing in"));
  members.back().second.resize(512);
  write(archive, tar_of(members));
  REQUIRE_THROWS_WITH(load_cifar10(archive.string(), Verify::never), contains_text("has 512 bytes, not 30730000"));
  write(archive, std::string(5000, 'x'));
  REQUIRE_THROWS_WITH(load_cifar10(archive.string(), Verify::never), contains_text("is not a tar archive"));
  write(archive, "");
  REQUIRE_THROWS_WITH(load_cifar10(archive.string(), Verify::never), contains_text("is truncated"));
}

TEST_CASE("the archive reader passes over what it is not asked to read", "[datasets]") {
  const TempFolder temp;
  const fs::path path = temp.path / "a.tar";
  write(path, tar_of({{"one", std::string(700, 'a')}, {"empty", ""}, {"two", "bb"}}));
  TarReader reader(path.string());
  REQUIRE(reader.next());
  REQUIRE(reader.name() == "one");
  REQUIRE(reader.next());
  REQUIRE(reader.size() == 0);
  REQUIRE(reader.next());
  std::string content(reader.size(), '\0');
  reader.read(content.data());
  REQUIRE(content == "bb");
  REQUIRE_THROWS_AS(reader.read(content.data()), Error);
  REQUIRE(!reader.next());
  REQUIRE_THROWS_WITH(TarReader((temp.path / "b.tar").string()), contains_text("cannot open"));
}

TEST_CASE("slices share, subsets copy", "[datasets]") {
  const ImageDataset d = synthetic(20, 1).train;
  const ImageDataset part = d.slice(5, 9);
  REQUIRE(part.size() == 4);
  REQUIRE(part.images.raw_data() == d.images.data<uint8_t>() + 5 * 3072);
  REQUIRE_NOTHROW(part.validate("test"));
  const ImageDataset picked = d.subset({7, 3, 7});
  REQUIRE(values<int64_t>(picked.labels) == std::vector<int64_t>{7, 3, 7});
  REQUIRE(std::memcmp(picked.images.raw_data(), d.images.data<uint8_t>() + 7 * 3072, 3072) == 0);
  REQUIRE_THROWS_AS(d.subset({20}), IndexError);
  REQUIRE_THROWS_AS(d.slice(3, 21), IndexError);
}

TEST_CASE("channel statistics by their formula", "[datasets]") {
  const Tensor images = from_vector<uint8_t>({0, 255, 51, 255, 102, 255, 51, 255}, {1, 2, 2, 2});
  const ChannelStats s = channel_stats(images);
  REQUIRE(s.mean[0] == Approx(0.2));
  REQUIRE(s.mean[1] == 1.0);
  REQUIRE(s.stddev[0] == Approx(std::sqrt(0.02)));
  REQUIRE(s.stddev[1] == 0.0);
}

TEST_CASE("the procedural set depends on the seed and the index alone", "[datasets]") {
  const ImageSplits s = synthetic(300, 40, 5);
  REQUIRE_NOTHROW(s.train.validate("test"));
  REQUIRE(s.train.images.shape() == Shape{300, 32, 32, 3});
  REQUIRE(s.test.size() == 40);
  for (int64_t i = 0; i < 300; ++i) REQUIRE(s.train.labels.data<int64_t>()[i] == i % 10);
  const auto bytes = [](const Tensor& t) { return std::string(static_cast<const char*>(t.raw_data()), t.nbytes()); };
  const std::string train = bytes(s.train.images);
  REQUIRE(bytes(synthetic(300, 0, 5).train.images) == train);
  REQUIRE(bytes(synthetic(120, 0, 5).train.images) == train.substr(0, 120 * 3072));
  REQUIRE(bytes(synthetic(300, 0, 6).train.images) != train);
  REQUIRE(bytes(s.test.images) != train.substr(0, 40 * 3072));
  std::set<std::string> distinct;
  for (size_t i = 0; i < 300; ++i) distinct.insert(train.substr(i * 3072, 3072));
  REQUIRE(distinct.size() == 300);
  // Integers only, so the same everywhere: computed once, to notice a change that would make old results incomparable.
  REQUIRE(sha256(train.data(), train.size()) == "5c16e91a05609880ec08158769c08f6a95fb3a81b1d672f327bf26b51813131b");
  REQUIRE(s.test.mean == channel_stats(s.train.images).mean);
  REQUIRE_THROWS_AS(synthetic(0), ValueError);
  REQUIRE_THROWS_AS(synthetic(1, -1), ValueError);
}

TEST_CASE("the real CIFAR-10", "[datasets]") {
  const char* folder = std::getenv("ANELLO_CIFAR10");
  if (folder == nullptr) {
    WARN("skipped: ANELLO_CIFAR10 does not name a folder with the real files");
    return;
  }
  const ImageSplits s = load_cifar10(folder, Verify::always);
  for (const ImageDataset* d : {&s.train, &s.test}) {
    int64_t count[10] = {};
    for (const int64_t label : values<int64_t>(d->labels)) ++count[label];
    for (const int64_t n : count) REQUIRE(n == d->size() / 10);
  }
  const ChannelStats stats = channel_stats(s.train.images);
  for (size_t c = 0; c < 3; ++c) {
    REQUIRE(std::abs(stats.mean[c] - s.train.mean[c]) < 6e-5);
    REQUIRE(std::abs(stats.stddev[c] - s.train.stddev[c]) < 6e-5);
  }
}
