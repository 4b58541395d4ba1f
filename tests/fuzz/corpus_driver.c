/* Runs a fuzz target over files: DRIVER FILE|FOLDER... Each input ends at a page that must not be touched, so that a
 * read beyond it faults in any build. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

static int n_run;

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    fseek(f, 0, SEEK_END);
    long len = ftell(f);
    rewind(f);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = len > 0 ? (size_t)len : 0;
    size_t room = (size + page - 1) / page * page;
    uint8_t *base = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + room, page, PROT_NONE) != 0) {
        perror("mmap");
        return 1;
    }
    uint8_t *data = base + room - size;
    int failed = fread(data, 1, size, f) != size;
    fclose(f);
    if (!failed) {
        fprintf(stderr, "%s\n", path); /* the last line tells which input crashed */
        LLVMFuzzerTestOneInput(data, size);
        n_run++;
    }
    munmap(base, room + page);
    return failed;
}

static int run_folder(const char *path)
{
    struct dirent **entries;
    int failed = 0, n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) {
        perror(path);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            failed |= run_file(file);
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        struct stat st;
        failed |= stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode) ? run_folder(argv[i]) : run_file(argv[i]);
    }
    fprintf(stderr, "%d inputs\n", n_run);
    return failed || n_run == 0;
}
