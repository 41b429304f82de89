// The client under test, and what all tests have in common. CLIENT is the name of
// the client, SERVER the part of a connection string behind the scheme, and SESSION
// a stream of the ledger's own.
import assert from "node:assert/strict";
import { speak } from "./dialects.js";

export const { CLIENT, SERVER, SESSION } = process.env;
export const limit = { timeout: 60_000 };
export const d = await speak(CLIENT);

// A Feed returns the events of a subscription one by one, and remembers that the
// subscription caught up.
export class Feed {
	constructor(subscription) {
		this.subscription = subscription;
		this.caughtUp = new Promise((resolve) => subscription.once("caughtUp", resolve));
		this.iterator = subscription[Symbol.asyncIterator]();
	}

	async take(n) {
		const taken = [];
		while (taken.length < n) {
			const { value, done } = await this.iterator.next();
			assert.ok(!done, `the subscription ended after ${taken.length} of ${n} events`);
			taken.push(value);
		}
		return taken;
	}

	async texts(n) {
		return texts((await this.take(n)).map(({ event }) => event));
	}

	end() {
		return this.subscription.unsubscribe();
	}
}

// collect returns the events of a read.
export async function collect(reading) {
	const all = [];
	for await (const { event } of reading) all.push(event);
	return all;
}

export const texts = (events) => events.map((event) => event.data.text);

// counted returns the texts of the events that write appends.
export const counted = (from, to) => Array.from({ length: to - from }, (_, i) => `${from + i}`);

const called = new Set();

// recording returns a client that notes the names of the methods that are called.
function recording(client) {
	return new Proxy(client, {
		get(target, name) {
			const member = target[name];
			if (typeof member !== "function") return member;
			return (...args) => {
				called.add(name);
				return member.apply(target, args);
			};
		},
	});
}

const settings = /^(constructor|connectionName|throwOnAppendFailure|credentialsProvider|setCredentialsProvider|capabilities|rustClient|createDeadline|HTTPRequest)$/;

// uncalled returns the names of the kinds of calls that the tests never made.
export function uncalled() {
	const names = new Set();
	for (let type = d.Client.prototype; type !== Object.prototype; type = Object.getPrototypeOf(type)) {
		for (const name of Object.getOwnPropertyNames(type)) names.add(name);
	}
	return [...names].filter((name) => !settings.test(name) && !called.has(name)).sort();
}

export const client = recording(d.connect("", SERVER));

export const said = (text, type = "said") => d.jsonEvent({ type, data: { text }, metadata: { by: d.name } });
export const write = (stream, from, to, type) => client.appendToStream(stream, counted(from, to).map((text) => said(text, type)));
