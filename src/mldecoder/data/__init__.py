"""From a folder, table or name to pictures with targets; one reader a file, ``open_dataset`` finds the right one."""
