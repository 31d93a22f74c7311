"""Power cuts: a recorded run of the spool, cut at any system call, with what the disk may have kept."""
