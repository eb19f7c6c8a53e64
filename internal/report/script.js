// Sorts and filters tables, and shows the values of charts in a line below them. Without it a page shows all of them.
"use strict";
(() => {
	const order = new Intl.Collator("en", { numeric: true }).compare;
	const text = cell => cell ? cell.textContent.trim() : "";
	const number = cell => { // NaN: the cell has none
		const data = cell && cell.querySelector("data");
		const shown = text(cell).replaceAll(",", "");
		return data ? Number(data.value) : shown === "" ? NaN : Number(shown);
	};
	const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
	for (const table of document.querySelectorAll("table")) {
		const head = table.tHead && table.tHead.rows[0], body = table.tBodies[0];
		if (!head || !body || body.rows.length < 2) continue;
		const rows = [...body.rows];
		let by = -1, direction = 1; // -1: the order of the page
		const mark = () => table.classList.toggle("sorted", by >= 0 || rows.some(row => row.hidden));
		const sort = column => {
			[by, direction] = column !== by ? [column, 1] : direction > 0 ? [column, -1] : [-1, 1];
			const sorted = [...rows];
			if (by >= 0) sorted.sort((a, b) => {
				const x = number(a.cells[by]), y = number(b.cells[by]);
				if (isNaN(x) && isNaN(y)) return direction * order(text(a.cells[by]), text(b.cells[by]));
				return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : direction * (x - y); // numbers come first
			});
			body.append(...sorted);
			[...head.cells].forEach((th, i) => th.ariaSort = i !== by ? "none" : direction > 0 ? "ascending" : "descending");
			mark();
		};
		[...head.cells].forEach((th, i) => {
			Object.assign(th, { ariaSort: "none", tabIndex: 0, title: "Sort" });
			th.addEventListener("click", () => sort(i));
			th.addEventListener("keydown", e => {
				if (e.key !== "Enter" && e.key !== " ") return;
				e.preventDefault();
				sort(i);
			});
		});
		if (rows.length < 6) continue;
		const field = make("input", { type: "search", placeholder: "Filter rows", ariaLabel: "Filter rows" });
		const count = make("small", { ariaLive: "polite" }), box = make("p", { className: "filter" });
		field.addEventListener("input", () => {
			const wanted = field.value.trim().toLowerCase();
			for (const row of rows) row.hidden = ![...row.cells].map(text).join(" ").toLowerCase().includes(wanted);
			count.textContent = wanted && `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
			mark();
		});
		box.append(field, " ", count);
		(table.closest(".wide") || table).before(box);
	}
	for (const chart of document.querySelectorAll("figure > svg")) {
		const titles = [...chart.querySelectorAll("title")];
		if (!titles.length || chart.closest("#live")) continue; // the live view is replaced each second
		const line = make("p", { className: "readout", textContent: "Point at a value, or touch it, to read it." });
		let shown;
		const show = e => { // the nearest value; of several at the pointer, the smallest
			const far = title => {
				const r = title.parentNode.getBoundingClientRect();
				return Math.hypot(Math.max(r.left - e.clientX, 0, e.clientX - r.right), Math.max(r.top - e.clientY, 0, e.clientY - r.bottom)) +
					r.width * r.height / 1e6;
			};
			const nearest = titles.map(title => [far(title), title]).reduce((a, b) => b[0] < a[0] ? b : a)[1];
			if (shown) shown.classList.remove("at");
			shown = nearest.parentNode;
			shown.classList.add("at");
			line.textContent = nearest.textContent;
		};
		chart.addEventListener("pointermove", show);
		chart.addEventListener("pointerdown", show);
		chart.after(line);
	}
})();
