/* Runs a fuzz target once over every file of the folders and files named, without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_files;

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1); /* exactly as large as the input, for the sanitizers */
    int bad = !data || fread(data, 1, size, f) != size;
    fclose(f);
    if (bad) {
        fprintf(stderr, "%s: cannot be read\n", path);
    } else {
        LLVMFuzzerTestOneInput(data, size);
        n_files++;
    }
    free(data);
    return bad;
}

static int run_path(const char *path)
{
    struct stat st;
    DIR *folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    if (!folder)
        return run_file(path);
    int bad = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char file[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        bad |= run_path(file);
    }
    closedir(folder);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = argc < 2;
    for (int i = 1; i < argc; i++)
        bad |= run_path(argv[i]);
    printf("%lu files\n", n_files);
    return bad || n_files == 0; /* an empty corpus tests nothing */
}
