// What has to be said before any module may run: a browser loads neither modules nor workers from file://.
if (location.protocol === "file:") {
  const status = document.getElementById("status");
  status.setAttribute("role", "alert");
  status.textContent = "A browser does not run this page from a file. Serve the folder: run `mlsysim labs open` with its " +
    "path, or put it on any static host.";
  document.documentElement.dataset.failed = "";
}
