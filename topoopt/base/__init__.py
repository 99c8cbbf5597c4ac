"""Below all of topoopt: files, processes, interrupts."""
