"use strict";
// The texts of the session are in <script type="application/json"> elements, which browsers
// do not run. They reach the page by textContent only. An item is parsed when it is shown
// or searched for the first time.
(() => {
	const byID = (id) => document.getElementById(id);
	const dataOf = (id) => JSON.parse(byID(id).textContent);
	const list = byID("rows"), search = byID("search"), tool = byID("tool"), outcome = byID("outcome"), kind = byID("kind"), state = byID("status");
	const rows = dataOf("index"); // [kind, name, outcome, at, summary, depth]

	const element = (name, className, text) => {
		const made = document.createElement(name);
		if (className) made.className = className;
		if (text !== undefined) made.textContent = text;
		return made;
	};

	const items = new Map();
	const itemOf = (i) => {
		if (!items.has(i)) items.set(i, dataOf("item-" + i));
		return items.get(i);
	};

	// The text of an item in lower case, for the search.
	const texts = new Map();
	const textOf = (i) => {
		if (!texts.has(i)) {
			const item = dataOf("item-" + i); // not kept: a search parses all items
			const parts = [rows[i][0], rows[i][1], rows[i][2], rows[i][4]];
			for (const field of item.fields || []) parts.push(field[0], field[1]);
			for (const block of item.blocks || []) parts.push(block.title, block.text || "");
			texts.set(i, parts.join("\n").toLowerCase());
		}
		return texts.get(i);
	};

	const time = (ms) => {
		const s = Math.abs(ms) / 1000, sign = ms < 0 ? "-" : "+";
		if (s < 60) return sign + s.toFixed(2) + "s";
		const two = (n) => String(Math.floor(n)).padStart(2, "0");
		return sign + (s < 3600 ? Math.floor(s / 60) + ":" + two(s % 60) : Math.floor(s / 3600) + ":" + two(s / 60 % 60) + ":" + two(s % 60));
	};

	const heads = []; // the buttons of the rows
	const render = () => {
		rows.forEach((row, i) => {
			const entry = element("li", (row[0] === "call" ? "call " : "") + "depth" + row[5]);
			const head = element("button", "row");
			head.type = "button";
			head.id = "row-" + i;
			head.setAttribute("aria-expanded", "false");
			head.append(element("span", "at", time(row[3])), element("span", "kind", row[0] === "call" ? row[1] : row[0]));
			head.append(element("span", row[2] ? "outcome " + (/^[a-z_]+$/.test(row[2]) ? row[2] : "") : "name", row[2]), element("span", "summary", row[4]));
			entry.append(head);
			heads.push(head);
		});
	};

	// Adds a text to an element, with the words of the search marked.
	const marked = (to, text, words) => {
		const lower = words ? text.toLowerCase() : "";
		if (!words || lower.length !== text.length) {
			to.append(text);
			return;
		}
		let from = 0, found = 0;
		for (let at = lower.indexOf(words); at >= 0 && found < 500; at = lower.indexOf(words, from), found++) {
			to.append(text.slice(from, at), element("mark", "", text.slice(at, at + words.length)));
			from = at + words.length;
		}
		to.append(text.slice(from));
	};

	const blockOf = (block, words) => {
		const made = element("section");
		made.append(element("h2", "", block.title));
		if (block.form === "image") {
			if (/^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/.test(block.image)) {
				const image = element("img");
				image.alt = block.title;
				image.src = block.image;
				made.append(image);
			}
			return made;
		}
		const text = element("pre");
		text.tabIndex = 0;
		if (block.form === "diff") {
			for (const line of block.text.split("\n")) {
				const mark = line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "hunk" : "";
				const part = element("span", mark);
				marked(part, mark ? line : line + "\n", words);
				text.append(part);
			}
		} else {
			marked(text, block.text, words);
		}
		made.append(text);
		if (block.more) made.append(element("p", "more", block.more + " more bytes are not in this page"));
		return made;
	};

	const fold = (i) => {
		const head = heads[i];
		head.setAttribute("aria-expanded", "false");
		head.removeAttribute("aria-controls");
		if (head.nextSibling) head.nextSibling.remove();
	};

	const unfold = (i) => {
		fold(i);
		const item = itemOf(i), words = search.value.trim().toLowerCase();
		const detail = element("div", "detail");
		detail.id = "detail-" + i;
		detail.setAttribute("role", "region");
		detail.setAttribute("aria-labelledby", "row-" + i);
		const fields = element("dl");
		for (const field of item.fields || []) {
			const value = element("dd");
			marked(value, field[1], words);
			fields.append(element("dt", "", field[0]), value);
		}
		detail.append(fields);
		for (const block of item.blocks || []) detail.append(blockOf(block, words));
		heads[i].parentElement.append(detail);
		heads[i].setAttribute("aria-expanded", "true");
		heads[i].setAttribute("aria-controls", detail.id);
	};

	const toggle = (i) => (heads[i].getAttribute("aria-expanded") === "true" ? fold(i) : unfold(i));
	let shown = []; // the numbers of the rows that the filter shows

	// Unfolds all visible items, a part at a time, so that the page stays usable. A later
	// run ends an earlier one.
	let run = 0;
	const unfoldAll = () => {
		const todo = [...shown], mine = ++run;
		const next = () => {
			if (mine !== run) return;
			todo.splice(0, 50).forEach(unfold);
			if (todo.length) setTimeout(next);
		};
		next();
	};
	const foldAll = () => {
		run++;
		heads.forEach((_, i) => fold(i));
	};

	const filter = () => {
		run++;
		const words = search.value.trim().toLowerCase();
		shown = [];
		rows.forEach((row, i) => {
			const fits = (!tool.value || row[1] === tool.value) && (!outcome.value || row[2] === outcome.value) &&
				(kind.value === "" || (kind.value === "call" ? row[0] === "call" : kind.value === row[0])) && (!words || textOf(i).includes(words));
			if (fits) shown.push(i);
			if (heads[i].getAttribute("aria-expanded") === "true") unfold(i); // marks the words
		});
		list.replaceChildren(...shown.map((i) => heads[i].parentElement));
		state.textContent = (shown.length < rows.length ? shown.length + " of " : "") + rows.length + " entries";
	};

	const choices = (select, column) => {
		for (const value of [...new Set(rows.map((row) => row[column]).filter(Boolean))].sort()) {
			const option = element("option", "", value);
			option.value = value;
			select.append(option);
		}
	};

	const move = (step) => {
		const all = shown;
		if (!all.length) return;
		const entry = document.activeElement && document.activeElement.closest ? document.activeElement.closest("#rows > li") : null;
		const now = entry ? all.indexOf(heads.indexOf(entry.firstElementChild)) : -1;
		const to = step === "first" ? 0 : step === "last" ? all.length - 1 : now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + step));
		heads[all[to]].focus();
		heads[all[to]].scrollIntoView({block: "nearest"});
	};

	const theme = () => {
		const root = document.documentElement;
		const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
		root.dataset.theme = dark ? "light" : "dark";
	};

	document.addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey) return;
		const typing = event.target === search || event.target.tagName === "SELECT";
		if (event.key === "Escape" && event.target === search) {
			if (search.value) {
				search.value = "";
				filter();
			} else {
				move(1);
			}
			return;
		}
		if (event.key === "Enter" && event.target === search) {
			event.preventDefault();
			filter();
			move("first");
			return;
		}
		if (typing) return;
		const actions = {
			j: () => move(1), k: () => move(-1), g: () => move("first"), G: () => move("last"), "/": () => search.focus(),
			u: unfoldAll, f: foldAll, t: theme,
		};
		const action = actions[event.key];
		if (action) {
			event.preventDefault();
			action();
		}
	});

	list.addEventListener("click", (event) => {
		const head = event.target.closest("button.row");
		if (head) toggle(heads.indexOf(head));
	});
	let wait;
	search.addEventListener("input", () => {
		clearTimeout(wait);
		wait = setTimeout(filter, 150);
	});
	for (const select of [tool, outcome, kind]) select.addEventListener("change", filter);
	byID("unfold").addEventListener("click", unfoldAll);
	byID("fold").addEventListener("click", foldAll);
	byID("theme").addEventListener("click", theme);
	byID("tools").addEventListener("submit", (event) => event.preventDefault());
	addEventListener("beforeprint", () => shown.forEach(unfold));

	render();
	choices(tool, 1);
	choices(outcome, 2);
	choices(kind, 0);
	filter();
	const named = /^#item-([0-9]+)$/.exec(location.hash);
	if (named && heads[named[1]]) {
		unfold(Number(named[1]));
		heads[named[1]].focus();
	}
	document.documentElement.dataset.ready = "true";
})();
