// All parts in the order of the page; `data-ready` tells that none of them failed.
for (const show of [showSummary, showCauses, showLayers, showNetwork, showActivity, showTimeline,
  showRoofline, showWhatIf, showPlacement, showCounters, showWords, showContents]) {
  show();
}
document.documentElement.dataset.ready = "true";
