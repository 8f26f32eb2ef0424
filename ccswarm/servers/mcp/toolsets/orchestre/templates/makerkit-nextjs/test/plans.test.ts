import assert from "node:assert/strict";
import { test } from "node:test";
import { costs, money, PLANS, planOf } from "../lib/plans";

const team = planOf("team")!;

test("plans have ids of their own, and cost more from one to the next", () => {
  assert.equal(new Set(PLANS.map((plan) => plan.id)).size, PLANS.length);
  const prices = PLANS.map((plan) => plan.price);
  assert.deepEqual(prices, [...prices].sort((a, b) => a - b));
});

test("a year costs ten months", () => {
  assert.equal(costs(team, 3, "month"), 3600);
  assert.equal(costs(team, 3, "year"), 36000);
  assert.equal(money(36000), "$360.00");
});

test("a team that a plan does not bear is refused", () => {
  for (const seats of [0, -1, 1.5, Number.NaN, 21]) {
    assert.throws(() => costs(team, seats, "month"), RangeError);
  }
  assert.equal(costs(planOf("business")!, 500, "month"), 1450000);
});
