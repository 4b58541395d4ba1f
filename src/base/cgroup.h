/* Limits on processor time that the control groups of Linux set. */
#ifndef POME_BASE_CGROUP_H
#define POME_BASE_CGROUP_H

/* Processors that the groups of a process grant together, as a fraction; 0: no limit. `membership` is a file in the form
 * of /proc/self/cgroup and `mount` the folder where the hierarchies lie (/sys/fs/cgroup): version 2 with cpu.max, version
 * 1 with cpu.cfs_quota_us and cpu.cfs_period_us. The groups around count too, up to what is mounted; the least is the
 * limit. What cannot be read limits nothing. */
double pome_cgroup_processors(const char *membership, const char *mount);

#endif
