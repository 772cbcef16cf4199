"use strict";

// The data that stand beside each figure and table, and files made of them.

function dataOf(element) {
  return JSON.parse(element.querySelector("script.data").textContent);
}

const tablesRead = new Map();

function tableOf(id) {
  if (!tablesRead.has(id)) tablesRead.set(id, dataOf(document.getElementById(id)));
  return tablesRead.get(id);
}

function cell(column, row) {
  const value = column.values[row];
  if (column.numeric) return value;
  return value < 0 ? null : column.levels[value];
}

function rowsWhere(table, where, having) {
  const tests = table.columns.filter((column) => column.name in where);
  const known = table.columns.filter((column) => having.includes(column.name));
  const fits = (row) => tests.every((column) => isOneOf(column, cell(column, row), [where[column.name]].flat()));
  return allRows(table).filter((row) => fits(row) && known.every((column) => cell(column, row) !== null));
}

function isOneOf(column, value, values) {
  if (value === null || !column.numeric) return values.includes(String(value));
  return values.some((one) => Math.abs(value - Number(one)) <= 1e-6 * Math.abs(value));
}

// The rows that a view shows: its points where it has some, else those of its table, of which the page may hold a part.
function rowsOf(view) {
  const table = view.points ?? tableOf(view.table);
  return { table, rows: view.points ? allRows(table) : rowsWhere(table, view.where, view.having) };
}

function allRows(table) {
  return Array.from({ length: table.rows }, (_, row) => row);
}

function csvOf(table, rows) {
  const lines = [table.columns.map((column) => column.name)];
  for (const row of rows) lines.push(table.columns.map((column) => cell(column, row)));
  return lines.map((line) => line.map(csvField).join(",")).join("\r\n") + "\r\n";
}

function csvField(value) {
  const text = value === null ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveText(text, name, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  saveUrl(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function saveUrl(url, name) {
  const link = document.createElement("a");
  link.href = url;
  link.download = fileName(name);
  link.click();
}

function fileName(name) {
  return name.replace(/[^\p{L}\p{N}._-]+/gu, "-");
}
