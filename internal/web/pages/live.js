// Replaces the live part of a run's page with each new version from the controller.
"use strict";
(() => {
	const place = document.getElementById("live");
	const again = seconds => setTimeout(() => location.reload(), seconds * 1000);
	if (!place) {
		again(10);
		return;
	}
	const source = new EventSource(place.dataset.from);
	let old = false;
	const show = e => {
		place.innerHTML = e.data;
		if (old && performance.now() > 20000) location.reload(); // for the tables
	};
	source.addEventListener("live", show);
	source.addEventListener("task", e => { old = true; show(e); });
	source.addEventListener("end", e => {
		place.innerHTML = e.data;
		source.close();
		again(2); // by then it is known how the run stands
	});
	source.addEventListener("error", () => {
		if (source.readyState === EventSource.CLOSED) again(10);
	});
})();
