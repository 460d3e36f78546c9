// CIFAR-10 (binary version): 60,000 colour images of 32x32 pixels in 10 classes, from a folder, the archive or a
// download. Main entry: load_cifar10(), download_cifar10(). Source: A. Krizhevsky, "Learning multiple layers of
// features from tiny images", 2009; file format: https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <anello/datasets/dataset.h>
#include <anello/datasets/download.h>

#include <string>
#include <vector>

namespace anello::data {

/// Whether the files' SHA-256 must be that of the official ones: an archive's members always, those of a folder never
/// (automatic), or as said. Sizes and labels are always checked.
enum class Verify : uint8_t { automatic, always, never };

/// 50,000 training and 10,000 test images in official order, with mean and stddev (0.4914, 0.4822, 0.4465) and (0.2470,
/// 0.2435, 0.2616). `path`: a folder with data_batch_1.bin .. data_batch_5.bin and test_batch.bin, or the folder above
/// cifar-10-batches-bin, or cifar-10-binary.tar.gz, or the folder that holds it. Raises IoError when a file is missing,
/// has another size, the wrong checksum or a label above 9: it names the file, what was expected and what was found.
ImageSplits load_cifar10(const std::string& path, Verify verify = Verify::automatic);

/// Downloads cifar-10-binary.tar.gz (162 MiB) into `cache_dir` (empty: cache_dir()) unless it is there, and gives its
/// path for load_cifar10. See download() for resuming, checking and errors. ANELLO_CIFAR10_URL names another place to
/// get it from.
std::string download_cifar10(const std::string& cache_dir = "", const Progress& progress = {},
                             const std::vector<std::string>& fetcher = {});

}  // namespace anello::data
